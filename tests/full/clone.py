"""A fresh clone, and the commands that a user runs there."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environ() -> dict[str, str]:
    """A user's shell: nothing of this test run's environment."""
    kept = {"HOME", "PATH", "LANG", "CI"}
    return {n: v for n, v in os.environ.items() if n in kept or n.startswith(("PIP_", "SSL_"))}


def run(clone: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=clone, env=environ(), capture_output=True, text=True)


def make(clone: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    return run(clone, "make", *targets)


def stamps(clone: Path, environment: str) -> dict[str, int]:
    """When each step of an environment was done."""
    folder = clone / environment / ".setup"
    return {stamp.name: stamp.stat().st_mtime_ns for stamp in folder.iterdir()}
