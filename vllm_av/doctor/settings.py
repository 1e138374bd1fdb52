"""The environment variables that change what vLLM, Triton and their threads do.

Rule: a value that may be a secret is never shown, only that it is set.
"""

import re
from collections.abc import Mapping

PREFIXES = ("VLLM_", "TRITON_", "OMP_", "KMP_", "GOMP_", "MKL_", "NUMBA_", "TORCH", "NCCL_")
NAMES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "XDG_CACHE_HOME",
)
HIDDEN = "(set, not shown)"

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"bearer\s|\b(sk|hf)[-_]\w{8,}", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter, sorted by name, with secrets hidden."""
    return {
        name: shown(name, value)
        for name, value in sorted(environ.items())
        if name in NAMES or name.startswith(PREFIXES)
    }


def shown(name: str, value: str) -> str:
    """``value``, or that it is set; a login inside an address is cut out."""
    if _SECRET.search(name) or _SECRET_VALUE.search(value):
        return HIDDEN
    return _LOGIN.sub("***@", value)
