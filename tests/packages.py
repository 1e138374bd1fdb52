"""Packages of the tests, importable as if they were installed.

Rule: a package's pyproject.toml is the one place that names its entry points.
"""

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path

EXAMPLES = Path(__file__).parent / "examples"


def expose(project: Path, folder: Path) -> list[str]:
    """Write the metadata of ``project`` into ``folder``, as an installer would.

    Returns:
        What must be on the module search path for it to count as installed.
    """
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    name, version = described["name"], described["version"]
    return [str(project), write_dist(folder, name, version, described["entry-points"])]


def write_dist(folder: Path, name: str, version: str, groups: dict[str, dict[str, str]]) -> str:
    """Write a ``.dist-info`` into ``folder``; returns ``folder``.

    Args:
        groups: entry points by group, ``{group: {name: value}}``.
    """
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    summary = f"About {name}"
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    )
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return str(folder)


def python_path(entries: Iterable[str]) -> str:
    """The value of ``PYTHONPATH`` that adds ``entries`` to what it is."""
    before = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*entries, *([before] if before else [])])
