"""Finding the Python that the lock is made for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci.setup.pythons import find, probe

ROOT = Path(__file__).parents[3]


def _fake(folder: Path, name: str, body: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_this_interpreter_is_probed() -> None:
    assert probe(sys.executable) == ((sys.version_info[0], sys.version_info[1]), sys.executable)


def test_a_shim_that_only_prints_an_error_is_passed_over(path: Path) -> None:
    _fake(path, "python3.11", "echo 'command not found' >&2; exit 127")
    _fake(path, "python3", "echo 3 11 /real/python")
    assert find() == ("/real/python", ["python3.11: does not run"])


def test_other_versions_are_named(path: Path) -> None:
    _fake(path, "python3", "echo 3 12 /usr/bin/python3.12")
    assert find() == (None, ["python3.11: does not run", "python3: 3.12", "python: does not run"])


def test_a_wish_stands_alone(path: Path) -> None:
    _fake(path, "python3.11", "echo 3 11 /real/python")
    _fake(path, "mine", "echo 3 9 /mine")
    assert find("mine") == (None, ["mine: 3.9"])


def test_without_a_fit_python_the_command_says_what_to_do(path: Path) -> None:
    _fake(path, "python3", "echo 3 9 /usr/bin/python3.9")
    environ = {"PATH": str(path), "HOME": os.environ["HOME"]}
    command = [sys.executable, "-m", "ci.setup"]
    answer = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: [AV-SETUP-PYTHON] no Python 3.11 here")
    assert "make PYTHON=" in answer.stderr
    assert answer.stderr.count("\n") == 1
