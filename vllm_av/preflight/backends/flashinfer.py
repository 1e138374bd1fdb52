"""What the installed FlashInfer can do for adaptive verification. It is not imported.

vLLM's FlashInfer backend hands queries of several lengths to ``trtllm_batch_decode_with_kv_cache``
by ``max_q_len`` and ``cum_seq_lens_q``. FlashInfer takes them for its trtllm-gen kernel only, which
is the one it picks on the SM100 family; on SM90, SM120 and SM121 it picks XQA.

Rule: the signature is read from the source file, whatever version it calls itself.
"""

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from vllm_av.preflight.backends.kernels import FA2, TRTLLM_GEN, XQA
from vllm_av.preflight.facts import Gpu

DISTRIBUTION = "flashinfer-python"
FUNCTION = "trtllm_batch_decode_with_kv_cache"
LENGTHS = ("max_q_len", "cum_seq_lens_q")
"""The arguments that tell it of queries of several lengths."""


@dataclass(frozen=True)
class FlashInfer:
    """What is installed.

    Args:
        version: None where it is not installed.
        takes_lengths: whether the function has both arguments; None where its source cannot be
            read, or where there is none.
        source: file and line of the function; None as above.
    """

    version: str | None
    takes_lengths: bool | None
    source: str | None


def installed(path: Sequence[str] | None = None) -> FlashInfer:
    """The FlashInfer on ``path`` (default: this interpreter's)."""
    there = sys.path if path is None else list(path)
    for dist in distributions(name=DISTRIBUTION, path=there):
        file = Path(str(dist.locate_file("flashinfer/decode.py")))
        names, number = _arguments(file)
        takes = None if names is None else set(LENGTHS) <= names
        source = None if number is None else f"flashinfer/decode.py:{number}"
        return FlashInfer(_version(dist.metadata), takes, source)
    return FlashInfer(None, None, None)


def decode_kernel(gpu: Gpu) -> str | None:
    """Which of its decode kernels FlashInfer picks by itself; None where it has none."""
    if gpu.platform != "cuda" or (gpu.major, gpu.minor) < (8, 0):
        return None
    if gpu.major == 10:
        return TRTLLM_GEN
    return XQA if gpu.major in (9, 12) else FA2


def _version(metadata: object) -> str:
    get = getattr(metadata, "get", None)
    return str(get("Version") or "unknown") if get else "unknown"


def _arguments(file: Path) -> tuple[set[str] | None, int | None]:
    """The names of the function's arguments, and its line; None for what cannot be read."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None, None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == FUNCTION:
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            return {each.arg for each in given}, node.lineno
    return set(), None
