"""A small tree in memory, and two series for it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.unit.patching.kill.children import NEW, OLD, START
from tests.unit.patching.trees import install, write_series
from vllm_av.patching import install as verbs
from vllm_av.patching import status as status_module
from vllm_av.patching.series import Series


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only a power cut tells synced from unsynced; a killed process does not.
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    # Reading every process's maps thousands of times is slow; test_inuse.py tests it.
    monkeypatch.setattr(verbs, "refuse_if_used", lambda tree, verb: None)


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of trees are made here."""
    memory = Path("/dev/shm")
    folder = Path(mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def site(base: Path) -> Path:
    return install(base / "site", START)


@pytest.fixture
def pair(base: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Series, Series]:
    """The series of this vllm_av, and an older one to upgrade from."""
    monkeypatch.setattr(status_module, "series_root", lambda: base / "new")
    return write_series(base / "new", NEW, start=START), write_series(
        base / "old", OLD, start=START
    )
