"""The traces that bars and benchmarks are measured on: build/traces, or the folder AV_TRACES.

Each is a Parquet file or a folder of parts. `make traces` records those of the repository.
"""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def folder() -> Path:
    return Path(os.environ.get("AV_TRACES") or ROOT / "build" / "traces")


def paths() -> list[Path]:
    """Sorted by name; none where nothing was recorded."""
    there = sorted(folder().iterdir()) if folder().is_dir() else []
    return [
        path
        for path in there
        if (path.is_file() and path.suffix == ".parquet")
        or (path.is_dir() and any(path.glob("part-*.parquet")))
    ]


def parameters() -> list[object]:
    """For ``pytest.mark.parametrize``: one for each, or one that says why there is none."""
    if found := paths():
        return [pytest.param(path, id=path.stem) for path in found]
    reason = f"no trace in {folder()}: run `make traces`, or name a folder by AV_TRACES"
    return [pytest.param(None, id="none", marks=pytest.mark.skip(reason))]
