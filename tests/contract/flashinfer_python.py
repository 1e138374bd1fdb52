"""The Python of FlashInfer, for the processes that ask vLLM's classes about it.

Its kernels are of no use without a GPU, and its wheel unpacks to half a gigabyte: only what can be
imported is unpacked, once, into the cache.
"""

import hashlib
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from vllm_av.cache import cache_dir

WHEELS = {
    "flashinfer-python==0.7.2": "770550a0aa92b2f10e6c9a1f048dd43713f0f3bb6a12710186fcf8e4e9c99bd8",
    "nvidia-ml-py==13.615.71": "959bf4adf6fe1308e4bd739e722236b0d1ec8392e2cefad33ff70c311380b9b6",
    "tabulate==0.10.0": "f0b0622e567335c8fabaaa659f1b33bcb6ddfe2e496071b743aa113f8774f2d3",
}
"""With what it imports that vLLM does not bring -> the sha256 of its wheel."""


def folder() -> Path:
    """What to put on ``PYTHONPATH``.

    Raises:
        RuntimeError: where pip does not bring the pinned wheels.
    """
    found = cache_dir() / "flashinfer-0.7.2"
    if not (found / "complete").exists():
        wheels = found / "wheels"
        _download(wheels)
        for wheel in sorted(wheels.glob("*.whl")):
            with ZipFile(wheel) as packed:
                for name in packed.namelist():
                    if name.endswith(".py") or ".dist-info/" in name:
                        packed.extract(name, found)
            wheel.unlink()
        (found / "complete").touch()
    return found


def _download(to: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, f"--dest={to}", *WHEELS], capture_output=True, text=True, check=False
    )
    sums = {hashlib.sha256(each.read_bytes()).hexdigest() for each in to.glob("*.whl")}
    if sums != set(WHEELS.values()):
        raise RuntimeError(f"pip brought other wheels than the pinned ones: {done.stderr[-300:]}")
