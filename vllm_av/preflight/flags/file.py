"""``--config FILE``: vLLM's YAML file of flags, as the words that vLLM makes of it.

Rule: the words stand before those of the command line, which therefore have the last word.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.flags.known import SWITCHES
from vllm_av.preflight.reading import read_bytes

_MOST = 256 << 10  # bytes; YAML is slow to read
_ENDINGS = ("yaml", "yml")


def file_words(name: str, *, strict: bool = True) -> list[str]:
    """The flags in the YAML file ``name``.

    Args:
        strict: whether a key that stands twice is a mistake; else the last one counts.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: it is not there, no YAML, no mapping, or nothing reads it.
    """
    if name.rpartition(".")[2] not in _ENDINGS:
        raise _unreadable(name, "vLLM takes it by its name", "name it .yaml or .yml")
    try:
        from vllm_av.preflight.flags.documents import DocumentError, load
    except ImportError:
        raise _unreadable(name, "no YAML reader is installed", "pip install pyyaml") from None
    try:
        content = load(read_bytes(Path(name), _MOST).decode(), strict=strict)
    except UnicodeDecodeError:
        raise _unreadable(name, "it is not UTF-8 text", "correct it") from None
    except DocumentError as error:
        raise _unreadable(name, str(error), "correct it") from None
    except OSError as error:
        raise _unreadable(name, error.strerror or str(error), "correct the name") from None
    except ValueError as error:
        raise _unreadable(name, str(error), "correct the name or the file") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise _unreadable(name, "it holds no mapping of flags to values", "write `flag: value`")
    return [word for key, value in content.items() for word in _words(name, key, value)]


def _words(name: str, key: str, value: Any) -> Iterator[str]:
    try:
        yield from _told(key, value)
    except (TypeError, ValueError):  # a date; a number of more than 4,300 digits
        raise _unreadable(
            name, f"what stands under {shown(key)} has no JSON form", "correct it"
        ) from None


def _told(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        if value:
            yield f"--{key}"
        elif key.replace("_", "-") in SWITCHES:
            yield f"--no-{key}"
    elif isinstance(value, list):
        if value:
            yield f"--{key}"
            yield from map(str, value)
    elif isinstance(value, dict):
        yield from (f"--{key}", json.dumps(value))
    else:
        yield from (f"--{key}", str(value))


def _unreadable(name: str, why: str, fix: str) -> CheckError:
    return CheckError(
        Code.QUESTION_FLAG,
        given=f"--config {shown(name, 200)} cannot be read: {why}",
        allowed="a YAML file of vLLM's flags",
        fix=fix,
    )
