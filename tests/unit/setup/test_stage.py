"""``make drafters DRAFTER=name`` takes the names of the demonstration."""

import subprocess
import sys

import pytest

from ci.stage import stage
from vllm_av.demo.drafter import DRAFTERS
from vllm_av.errors import Code
from vllm_av.training.__main__ import STAGES


def _printed(*names: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ci.stage", *names]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_has_a_stage_that_is_there(drafter: str) -> None:
    assert stage(drafter) in STAGES


def test_the_one_name_that_differs_from_its_stage() -> None:
    differing = {name: stage(name) for name in DRAFTERS if stage(name) != name}
    assert differing == {"dspark-headless": "dspark"}


def test_without_a_name_it_is_all_of_them() -> None:
    assert _printed().stdout == "all\n"


@pytest.mark.parametrize("given", [["draft_model"], ["eagle", "eagle3"]])
def test_a_wrong_name_is_one_line_with_a_code(given: list[str]) -> None:
    answer = _printed(*given)
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"error: [{Code.DEMO_OPTION}] --drafter {' '.join(given)}; ")
    assert "draft-model" in line
