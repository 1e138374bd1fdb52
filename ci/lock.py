"""``make lock``: resolve pyproject's extras once and write every version to ``requirements.lock``.

The lock holds versions and no hashes. Hashes are not practicable across indexes: torch comes from
another index than the rest (and from a third where a machine keeps wheels of its own), mirrors
repack wheels, and pip's hash mode is all or nothing. What was installed is checked by importing it.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.setup.pins import normal

ROOT = Path(__file__).resolve().parents[1]

HEADER = """\
# Every version that `make` installs, for Python 3.11 on Linux x86_64. Written by `make lock`.
# Installed with --no-deps. No hashes: see ci/lock.py.
"""


@dataclass(frozen=True)
class Wanted:
    """What pyproject asks for: requirements to resolve, to take alone, and never to install."""

    requirements: tuple[str, ...]
    alone: tuple[str, ...]
    never: frozenset[str]


def wanted(pyproject: dict[str, Any]) -> Wanted:
    """Read ``[project]`` and ``[tool.vllm_av.lock]``."""
    project, lock = pyproject["project"], pyproject["tool"]["vllm_av"]["lock"]
    extras = project["optional-dependencies"]
    resolved = [*project["dependencies"], *(r for name in lock["extras"] for r in extras[name])]
    return Wanted(
        requirements=tuple(resolved),
        alone=tuple(lock["without-dependencies"]),
        never=frozenset(normal(name) for name in lock["never"]),
    )


def lock_text(wanted: Wanted, resolved: dict[str, str]) -> str:
    """The lock: sorted ``name==version`` lines.

    Args:
        wanted: from :func:`wanted`.
        resolved: name -> version, as pip resolved ``wanted.requirements``.
    """
    pins = {normal(name): version for name, version in resolved.items()}
    for requirement in wanted.alone:
        name, _, version = requirement.partition("==")
        pins[normal(name)] = version
    lines = [f"{name}=={pins[name]}\n" for name in sorted(pins) if name not in wanted.never]
    return HEADER + "".join(lines)


def resolve(requirements: tuple[str, ...]) -> dict[str, str]:
    """Ask pip, which installs nothing; name -> version."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--report", str(report), *requirements], check=True)
        installs = json.loads(report.read_text())["install"]
    return {entry["metadata"]["name"]: entry["metadata"]["version"] for entry in installs}


def main() -> None:
    """Write the lock beside pyproject.toml."""
    wants = wanted(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    text = lock_text(wants, resolve(wants.requirements))
    (ROOT / "requirements.lock").write_text(text)
    print(f"requirements.lock: {text.count('==')} versions")


if __name__ == "__main__":
    main()
