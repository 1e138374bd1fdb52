"""Which seams the vLLM of this process has.

Rule: asked of the files, without importing anything of vLLM.
"""

from collections.abc import Callable
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

_NEEDED = {
    "config/adaptive_verification.py": b"def validate_adaptive_verification_config",
    "config/speculative.py": b"validate_adaptive_verification_config(self)",
    # The interface alone would take a factory that nobody asks.
    "v1/worker/gpu/spec_decode/acceptance_scorer.py": b"def create_acceptance_scorer",
    "v1/worker/gpu/spec_decode/speculator.py": b"create_acceptance_scorer(",
    "v1/worker/gpu/spec_decode/draft_budget.py": b"def load_cost_curves",
    "v1/worker/gpu/spec_decode/adaptive_verification.py": b"policy.load_cost_curves(",
    "config/adaptive_verification_check.py": b"def register_adaptive_verification_checker",
    "config/vllm.py": b"check_adaptive_verification(self, blockers)",
    "model_executor/model_loader/base_loader.py": b"check_target_layers(vllm_config, model_config)",
    "v1/attention/selector.py": b"varlen_cudagraphs_required(",
    "v1/worker/gpu/sample/sampler.py": b"def get_target_only",
    "v1/worker/gpu/model_runner.py": b"self.speculator.add_request(",
}
"""Where a seam is, or is asked -> what the file then holds."""


class Seams(StrEnum):
    """How many of the seams are there."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


def found() -> Seams:
    """In the vLLM that this process imports."""
    spec = find_spec("vllm")
    roots = [Path(root) for root in spec.submodule_search_locations or ()] if spec else []
    there = [any(_holds(root / name, text) for root in roots) for name, text in _NEEDED.items()]
    if all(there):
        return Seams.ALL
    return Seams.SOME if any(there) else Seams.NONE


def missing(read: Callable[[str], bytes | None]) -> list[str]:
    """The seams that a vLLM lacks, each as its file and what that should hold.

    Args:
        read: a file below ``site-packages``; None: there is no such file.
    """
    return [
        f"vllm/{name} without {text.decode()!r}"
        for name, text in _NEEDED.items()
        if text not in (read(f"vllm/{name}") or b"")
    ]


def _holds(file: Path, text: bytes) -> bool:
    try:
        return text in file.read_bytes()
    except OSError:
        return False
