"""A pristine tree and a series of two patches."""

from pathlib import Path

import pytest

from tests.unit.patching.trees import FIRST, SECOND, install, write_series
from vllm_av.patching.series import Series
from vllm_av.patching.tree import Tree, find_tree


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return install(tmp_path / "env" / "lib" / "python3.11" / "site-packages")


@pytest.fixture
def tree(site: Path) -> Tree:
    return find_tree(site)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "patches"


@pytest.fixture
def series(root: Path) -> Series:
    return write_series(root, FIRST, SECOND)
