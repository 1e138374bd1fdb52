"""The environment variables that change what vLLM, Triton and their threads do.

Rule: a value is shown only for a variable that is known to hold no secret, and only if it does
not look like one; of the others it is said that they are set.
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
"""Reported; with their values."""

SHOWN = re.compile(
    r"(OMP|KMP|GOMP|MKL)_[A-Z_]+"
    r"|TRITON_(INTERPRET|CACHE_DIR|HOME|DEBUG|DEFAULT_BACKEND)"
    r"|NCCL_(DEBUG|P2P_DISABLE|IB_DISABLE|SOCKET_IFNAME|CUMEM_ENABLE)"
    r"|TORCH_(LOGS|HOME|CUDA_ARCH_LIST)|TORCHINDUCTOR_(CACHE_DIR|COMPILE_THREADS)"
    r"|VLLM_(AV_CACHE|PLUGINS|TARGET_DEVICE|USE_[A-Z0-9_]+|ENABLE_[A-Z0-9_]+|DISABLE_[A-Z0-9_]+"
    r"|CPU_[A-Z0-9_]+|ADAPTIVE_VERIFICATION_[A-Z_]+|ATTENTION_BACKEND|WORKER_MULTIPROC_METHOD"
    r"|LOGGING_LEVEL|CONFIGURE_LOGGING|CACHE_ROOT|CONFIG_ROOT|MOE_SKIP_PADDING|FLASH_ATTN_VERSION)"
)
"""Reported with their values, of those that the prefixes let in."""

HIDDEN = "(set, not shown)"

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTH|COOKIE|SIGNATURE", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"(bearer|basic)\s|authorization|signature=|token=|password=|secret="
    r"|\b(sk|hf|gh[a-z]|github_pat|glpat|xox[a-z]|AKIA|ASIA)[-_A-Z0-9][\w-]{8,}",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)\S*@")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter, sorted by name, with secrets hidden."""
    return {
        name: shown(name, value)
        for name, value in sorted(environ.items())
        if name in NAMES or name.startswith(PREFIXES)
    }


def shown(name: str, value: str) -> str:
    """``value``, or that it is set; a login inside an address is cut out."""
    known = name in NAMES or SHOWN.fullmatch(name)
    if not known or _SECRET_NAME.search(name) or _SECRET_VALUE.search(value):
        return HIDDEN
    return plain(_LOGIN.sub("***@", value))


def plain(text: str) -> str:
    """``text`` without characters that a terminal would obey or that no encoding has."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
