"""For all tests: threads that do not fight for few cores, and GPU tests skipped without one."""

import os
import shutil
from pathlib import Path

import pytest

# Read when torch and vLLM are imported, so before any test module is.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what needs a GPU where there is none."""
    if shutil.which("nvidia-smi") or Path("/proc/driver/nvidia/version").exists():
        return
    skip = pytest.mark.skip(reason="no NVIDIA GPU on this machine")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
