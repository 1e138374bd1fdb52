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
    "traces",
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
    last = plan.splitlines()[-1]
    assert " .venv-033/bin/pytest " in last
    assert last.endswith(" -m smoke tests/engine")


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


@pytest.mark.parametrize(
    ("target", "program", "before"),
    [("demo", "vllm-av", "demo --drafter"), ("drafters", "python", "-m ci.stage")],
)
@pytest.mark.parametrize(
    "value", ["a b", "a; touch made", "it's", "`touch made`", "$$(touch made)"]
)
def test_what_a_user_gives_is_one_argument(
    tmp_path: Path, target: str, program: str, before: str, value: str
) -> None:
    (tmp_path / program).write_text('#!/bin/sh\nprintf "%s\\n" "$@" >&2\nexit 1\n')
    (tmp_path / program).chmod(0o755)
    given = {"DRAFTER": value, "TEMPERATURE": "1 ;x"}
    answer = _make(
        *("-o", "setup", target, f"BIN={tmp_path}"),
        *(f"{name}={text}" for name, text in given.items()),
    )
    said = answer.stderr.splitlines()[:-1]  # the last line is make's own
    after = ["--temperature", "1 ;x"] if target == "demo" else []
    assert said == [*before.split(), value.replace("$$", "$"), *after]


def test_a_machine_without_python_is_told_so(tmp_path: Path) -> None:
    answer = _make("setup", path=str(tmp_path))
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: [AV-SETUP-PYTHON] no Python runs here; ")


def test_a_python_that_is_named_and_unfit_is_refused_by_name() -> None:
    answer = _make("setup", "PYTHON=/nowhere/python")
    assert answer.returncode == 2
    assert "/nowhere/python: does not run" in answer.stderr
