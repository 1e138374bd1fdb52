"""Distributions made of nothing but metadata, as an installer would leave them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_av.doctor.dists import Installed, scan
from vllm_av.machine import Machine

Make = Callable[..., None]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    return folder


@pytest.fixture
def make(site: Path) -> Make:
    def dist(name: str, version: str, entry_points: str = "", installer: str = "pip") -> None:
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "INSTALLER").write_text(f"{installer}\n")
        if entry_points:
            (info / "entry_points.txt").write_text(entry_points)

    return dist


@pytest.fixture
def look(site: Path) -> Callable[[], Installed]:
    return lambda: scan([str(site)])


@pytest.fixture
def machine() -> Machine:
    return Machine(
        system="Linux",
        python="CPython 3.11.7",
        executable="/python",
        cpu="a cpu",
        cpu_flags=("avx2",),
        cores=64,
        memory_gib=24.0,
        compiler="/usr/bin/cc",
        gpus=(),
    )
