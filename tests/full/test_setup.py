"""A fresh clone, set up as a user does it: killed on the way, spoilt, and set up again."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.full.clone import environ, make, run, stamps

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

SET_UP_LIMIT_S = 360
"""The bar for set-up on two cores. Loads of other work on the machine count against it."""


def _doctor(clone: Path) -> dict[str, object]:
    report = json.loads(run(clone, ".venv/bin/vllm-av", "doctor", "--json").stdout)
    assert isinstance(report, dict)
    return report


def _packages(clone: Path) -> list[str]:
    return sorted(path.name for path in clone.glob(".venv/lib/*/site-packages/*.dist-info"))


def test_killed_in_the_middle_of_pip_it_goes_on(clone: Path) -> None:
    start = time.monotonic()
    first = subprocess.Popen(
        ["make", "setup"],
        cwd=clone,
        env=environ(),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    with first:
        # In the midst of the longest step, where pip copies files into place.
        while len(_packages(clone)) < 40:
            assert time.monotonic() - start < SET_UP_LIMIT_S
            assert first.poll() is None, "set-up ended before it could be killed"
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
    second = make(clone, "setup")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "environment" not in second.stdout, "a step that was done was done again"
    assert time.monotonic() - start < SET_UP_LIMIT_S


def test_the_environment_is_sound(clone: Path) -> None:
    report = _doctor(clone)
    assert report["healthy"] is True, report["findings"]
    installed = subprocess.run(
        [str(clone / ".venv/bin/python"), "-m", "pip", "list", "--format=json"],
        env=environ(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    there = {
        entry["name"].lower().replace("_", "-"): entry["version"] for entry in json.loads(installed)
    }
    lines = (clone / "requirements.lock").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    lacking = {n: v for n, v in pins.items() if there.get(n.replace(".", "-")) != v}
    assert lacking == {}


def test_set_up_again_does_nothing(clone: Path) -> None:
    before = stamps(clone, ".venv")
    again = make(clone, "setup")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert stamps(clone, ".venv") == before
    assert "patches" in before


def test_a_torchvision_that_breaks_transformers_is_removed(clone: Path) -> None:
    site = next(clone.glob(".venv/lib/*/site-packages"))
    package, info = site / "torchvision", site / "torchvision-0.28.0.dist-info"
    package.mkdir()
    nms = 'raise RuntimeError("operator torchvision::nms does not exist")\n'
    (package / "__init__.py").write_text(nms)
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n")
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text(
        "torchvision/__init__.py,,\n"
        + "".join(f"{info.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD"))
    )
    python = str(clone / ".venv/bin/python")
    check = [python, "-c", "from vllm import LLM"]
    broken = subprocess.run(check, env=environ(), capture_output=True, text=True)
    assert "torchvision::nms" in broken.stderr

    for stamp in (clone / ".venv/.setup").iterdir():
        stamp.unlink()
    again = make(clone, "setup")
    assert again.returncode == 0, again.stdout + again.stderr
    assert not package.exists()
    assert not info.exists()
