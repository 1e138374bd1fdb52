"""Packages with scorers, made for a test and importable only in it."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packages import write_dist

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``install("name", {"scorer": "module:attribute"}, module="source")``."""
    modules: list[str] = []

    def make(name: str, points: dict[str, str], **sources: str) -> None:
        folder = tmp_path / name
        monkeypatch.syspath_prepend(write_dist(folder, name, "1.5", {"vllm_av.scorers": points}))
        for module, source in sources.items():
            (folder / f"{module}.py").write_text(source)
            modules.append(module)
        importlib.invalidate_caches()

    yield make
    for module in modules:
        sys.modules.pop(module, None)
