"""The Makefile and what CI calls, as far as they can be asked without setting up."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def _make(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    make = shutil.which("make")
    assert make is not None
    environ = {"PATH": path or os.environ["PATH"], "HOME": os.environ["HOME"]}
    command = [make, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)


def test_ci_calls_make_test_and_nothing_else() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["exec make test"]


TARGETS = (
    "demo",
    "drafters",
    "test",
    "test-033",
    "test-full",
    "bench",
    "check",
    "lock",
    "setup-033",
)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_sets_up_first(target: str) -> None:
    plan = _make("--dry-run", target).stdout
    assert plan.index("-m ci.setup") < plan.index(".venv/bin/")


def test_the_smoke_part_on_the_next_vllm_ends_make_test() -> None:
    plan = _make("--dry-run", "test").stdout
    assert plan.index("-m ci.hybrid") < plan.index(".venv-033/bin/pytest")
    assert plan.splitlines()[-1].endswith(" .venv-033/bin/pytest -m smoke tests/engine")


def test_a_users_python_settings_do_not_reach_what_make_starts() -> None:
    names = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    probe = "--eval=probe: ; @env"
    answer = subprocess.run(
        ["make", probe, "probe"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "KEPT": "1"} | dict.fromkeys(names, "x"),
        capture_output=True,
        text=True,
        check=True,
    )
    there = {line.partition("=")[0] for line in answer.stdout.splitlines()}
    assert "KEPT" in there
    assert not there & set(names)


def test_the_plain_command_lists_the_targets() -> None:
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lines = _make().stdout.splitlines()
    listed = {line.split()[1] for line in lines if line.startswith("make ")}
    assert listed == {name for line in phony for name in line.split()} - {"help"}


def test_a_machine_without_python_is_told_so(tmp_path: Path) -> None:
    answer = _make("setup", path=str(tmp_path))
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: [AV-SETUP-PYTHON] no Python runs here; ")


def test_a_python_that_is_named_and_unfit_is_refused_by_name() -> None:
    answer = _make("setup", "PYTHON=/nowhere/python")
    assert answer.returncode == 2
    assert "/nowhere/python: does not run" in answer.stderr
