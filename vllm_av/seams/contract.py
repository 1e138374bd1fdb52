"""Which seams the vLLM of this process has.

Rule: asked of the files, without importing anything of vLLM.
"""

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

_NEEDED = (
    "config/adaptive_verification.py",
    "v1/worker/gpu/spec_decode/acceptance_scorer.py",
)


class Seams(StrEnum):
    """How many of the seams are there."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


def found() -> Seams:
    """In the vLLM that this process imports."""
    spec = find_spec("vllm")
    roots = [Path(root) for root in spec.submodule_search_locations or ()] if spec else []
    there = [any((root / name).is_file() for root in roots) for name in _NEEDED]
    if all(there):
        return Seams.ALL
    return Seams.SOME if any(there) else Seams.NONE
