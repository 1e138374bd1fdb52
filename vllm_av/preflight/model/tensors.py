"""The names of a checkpoint's tensors, without loading any: from its index, or its header.

A safetensors file begins with the length of its header, 8 bytes, and the header, one JSON object
whose keys are the tensors' names (and ``__metadata__``).

Rule: None where the names cannot be had, which is no mistake: the weights may lie elsewhere.
"""

import json
import os
import stat
from pathlib import Path

from vllm_av.errors import Code
from vllm_av.preflight.model.files import read_index, unreadable

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_MAX_INDEX = 128 << 20  # bytes; of the largest published ones some 25 MiB
_MAX_HEADER = 100_000_000  # bytes, of the format itself
_MAX_FILES = 1024


def tensor_names(folder: Path, code: Code) -> frozenset[str] | None:
    """The names of all tensors in a folder; None where no file says them.

    Raises:
        CheckError: ``code``, where a file that should say them is broken.
    """
    for name in _INDEXES:
        file = folder / name
        try:
            index = read_index(file, _MAX_INDEX)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise unreadable(file, _told(error), code) from None
        names = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(names, dict):
            raise unreadable(file, "it holds no object under weight_map", code)
        return frozenset(names)
    found: set[str] = set()
    parts = sorted(folder.glob("*.safetensors"))[:_MAX_FILES]
    for part in parts:
        found |= _header(part, code)
    return frozenset(found) if parts else None


def _header(file: Path, code: Code) -> set[str]:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("it is no regular file")
            length = int.from_bytes(opened.read(8), "little")
            if not 2 <= length <= _MAX_HEADER:
                raise ValueError("it does not begin as a safetensors file does")
            data = opened.read(length)
        if len(data) < length:
            raise ValueError("it ends within its header")
        header = json.loads(data)
    except (OSError, RecursionError, ValueError) as error:
        reason = _told(error)
        if isinstance(error, RecursionError | UnicodeDecodeError | json.JSONDecodeError):
            reason = "its header is no JSON"
        raise unreadable(file, reason, code) from None
    if not isinstance(header, dict):
        raise unreadable(file, "its header is no object", code)
    return set(header) - {"__metadata__"}


def _told(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
