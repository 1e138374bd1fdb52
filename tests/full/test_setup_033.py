"""``.venv-033`` in the clone that :mod:`tests.full.test_setup` has set up: killed on the way, made
whole, and never a way to change ``.venv``."""

import csv
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.full.clone import environ, make, run, stamps
from vllm_av.patching.tree import record_line

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

SET_UP_LIMIT_S = 60
"""The bar for set-up, beside the download of the wheel. Other work on the machine counts."""


def _site(clone: Path, environment: str) -> Path:
    return next((clone / environment / "lib").glob("python3*/site-packages"))


def test_killed_while_it_unpacks_it_is_made_whole(clone: Path) -> None:
    assert make(clone, "setup").returncode == 0
    fetch = "from vllm_av.patching.wheels import pinned_wheel; pinned_wheel('0.33.0')"
    assert run(clone, ".venv/bin/python", "-c", fetch).returncode == 0
    package = clone / ".venv-033/lib/python3.11/site-packages/vllm"
    first = subprocess.Popen(
        ["make", "setup-033"],
        cwd=clone,
        env=environ(),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    with first:
        while not (package / "v1").exists():
            assert first.poll() is None, "set-up ended before it could be killed"
            time.sleep(0.01)
        os.killpg(first.pid, signal.SIGKILL)
    start = time.monotonic()
    second = make(clone, "setup-033")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "environment" not in second.stdout, "a step that was done was done again"
    assert time.monotonic() - start < SET_UP_LIMIT_S


def test_the_environment_is_sound(clone: Path) -> None:
    report = json.loads(run(clone, ".venv-033/bin/vllm-av", "doctor", "--json").stdout)
    assert report["healthy"] is True, report["findings"]
    complaints = run(clone, ".venv-033/bin/python", "-m", "pip", "check").stdout.splitlines()
    assert not [line for line in complaints if line.startswith("vllm ")]


def test_set_up_again_does_nothing(clone: Path) -> None:
    before = stamps(clone, ".venv-033")
    again = make(clone, "setup-033")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert stamps(clone, ".venv-033") == before
    assert "patches" in before


def test_what_is_done_to_it_leaves_the_other_environment_alone(clone: Path) -> None:
    def files() -> dict[str, tuple[int, int, int]]:
        facts = {
            str(path): path.lstat()
            for path in (clone / ".venv").rglob("*")
            if "__pycache__" not in path.parts and not path.is_dir()
        }
        return {name: (f.st_ino, f.st_size, f.st_mtime_ns) for name, f in facts.items()}

    before = files()
    for command in (
        ("vllm-av", "patch", "revert"),
        ("python", "-m", "pip", "uninstall", "--yes", "orjson"),
        ("python", "-m", "pip", "install", "--force-reinstall", "--no-deps", "filelock"),
    ):
        program, *arguments = command
        answer = run(clone, f".venv-033/bin/{program}", *arguments)
        assert answer.returncode == 0, answer.stdout + answer.stderr
    assert files() == before


def test_every_file_is_as_its_record_says(clone: Path) -> None:
    site = _site(clone, ".venv-033")
    own = "vllm-0.33.0+cpu.dist-info/RECORD"
    with (site / own).open(newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) > 5000
    for row in rows:
        content = None if row[0] == own else (site / row[0]).read_bytes()
        assert next(csv.reader([record_line(row[0], content)])) == row


def test_the_series_is_applied_anew(clone: Path) -> None:
    again = make(clone, "setup-033")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "patches: done" in again.stdout
    status = run(clone, ".venv-033/bin/vllm-av", "patch", "status")
    assert status.returncode == 0, status.stdout
