"""Find the Python that the lock is made for.

Rule: this file and ``__main__.py`` run on any Python 3.7 or later, since their work is to find
the right one.
"""

from __future__ import annotations

import os
import subprocess

VERSION = (3, 11)
CANDIDATES = ("python3.11", "python3", "python")

_PROBE = "import sys; print(*sys.version_info[:2], sys.executable)"


def probe(command: str) -> tuple[tuple[int, int], str] | None:
    """Version and path of the interpreter behind ``command``; None if it does not run.

    A command that exists is not enough: version managers leave shims that only print an error.
    """
    try:
        answer = subprocess.run(
            [command, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        major, minor, path = answer.strip().split(" ", 2)
        return (int(major), int(minor)), path
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def find(wish: str | None = None) -> tuple[str | None, list[str]]:
    """The path of a fit interpreter, and what was found instead of it.

    Args:
        wish: the user's ``PYTHON=``; then nothing else is tried.
    """
    seen = []
    for command in [wish] if wish else CANDIDATES:
        found = probe(command)
        if found is None:
            seen.append(f"{command}: does not run")
        elif found[0] != VERSION:
            seen.append(f"{command}: {found[0][0]}.{found[0][1]}")
        else:
            return os.path.abspath(found[1]), seen
    return None, seen
