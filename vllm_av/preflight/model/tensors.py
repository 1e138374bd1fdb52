"""The names of a checkpoint's tensors, without loading any: from its index, or its header.

A safetensors file begins with the length of its header, 8 bytes, and the header, one JSON object
whose keys are the tensors' names (and ``__metadata__``).

Rule: None where the names cannot be had, which is no mistake: the weights may lie elsewhere, or
their names take more memory and time than the answer is worth.
"""

import json
from pathlib import Path

from vllm_av.errors import Code
from vllm_av.preflight.model.files import read_index, unreadable
from vllm_av.preflight.reading import TooLargeError, opened, some

_SAFETENSORS, _PYTORCH = "model.safetensors.index.json", "pytorch_model.bin.index.json"
_MAX_NAMES = 32 << 20  # bytes of an index, or of all headers; the largest published have 25 MiB
_MAX_HEADER = 100_000_000  # bytes, of the format itself
_MAX_FILES = 1024


def tensor_names(folder: Path, code: Code) -> frozenset[str] | None:
    """The names of all tensors in a folder; None where no file says them.

    Raises:
        CheckError: ``code``, where a file that should say them is broken.
    """
    names = _listed(folder / _SAFETENSORS, code)
    if names is not None:
        return names
    parts = sorted(folder.glob("*.safetensors"))[:_MAX_FILES]
    if not parts:
        return _listed(folder / _PYTORCH, code)
    found: set[str] = set()
    left = _MAX_NAMES
    for part in parts:
        if not part.exists():  # a link of the hub's cache to what was removed
            return None
        try:
            more, length = _header(part, left, code)
        except TooLargeError:
            return None
        found |= more
        left -= length
    return frozenset(found)


def _listed(file: Path, code: Code) -> frozenset[str] | None:
    """The names in an index; None where there is none, or it is too large."""
    try:
        index = read_index(file, _MAX_NAMES)
    except (FileNotFoundError, TooLargeError):
        return None
    except (OSError, ValueError) as error:
        raise unreadable(file, _told(error), code) from None
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict):
        raise unreadable(file, "it holds no object under weight_map", code)
    return frozenset(names)


def _header(file: Path, most: int, code: Code) -> tuple[set[str], int]:
    """The names in the header of a file, and how many bytes it has.

    Raises:
        CheckError: ``code``, where the file is broken.
        TooLargeError: it has more than ``most``.
    """
    try:
        with opened(file) as stream:
            length = int.from_bytes(some(stream, 8), "little")
            if not 2 <= length <= _MAX_HEADER:
                raise ValueError("it does not begin as a safetensors file does")
            if most < length:
                raise TooLargeError
            data = some(stream, length)
        if len(data) < length:
            raise ValueError("it ends within its header")
        header = json.loads(data)
    except TooLargeError:
        raise
    except (OSError, RecursionError, ValueError) as error:
        reason = _told(error)
        if isinstance(error, RecursionError | UnicodeDecodeError | json.JSONDecodeError):
            reason = "its header is no JSON"
        raise unreadable(file, reason, code) from None
    if not isinstance(header, dict):
        raise unreadable(file, "its header is no object", code)
    return set(header) - {"__metadata__"}, length


def _told(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
