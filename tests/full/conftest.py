"""One clone for all tests of this folder, which run in the order of their files."""

import subprocess
from pathlib import Path

import pytest

from tests.full.clone import ROOT


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh") / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder
