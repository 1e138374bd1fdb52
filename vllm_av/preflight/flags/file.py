"""``--config FILE``: vLLM's YAML file of flags, as the words that vLLM makes of it.

Rule: the words stand before those of the command line, which therefore have the last word.
"""

import json
from collections.abc import Iterator
from typing import Any

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.flags.known import SWITCHES

_MOST = 1 << 20  # bytes


def file_words(name: str) -> list[str]:
    """The flags in the YAML file ``name``.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: it is not there, no YAML, no mapping, or nothing reads it.
    """
    try:
        import yaml
    except ImportError:
        raise _unreadable(name, "no YAML reader is installed", "pip install pyyaml") from None
    try:
        with open(name, "rb") as file:
            text = file.read(_MOST + 1)
        if len(text) > _MOST:
            raise ValueError("it has more than 1 MiB")
        content = yaml.safe_load(text.decode())
    except yaml.YAMLError:
        raise _unreadable(name, "it is not YAML", "correct it") from None
    except UnicodeDecodeError:
        raise _unreadable(name, "it is not UTF-8 text", "correct it") from None
    except OSError as error:
        raise _unreadable(name, error.strerror or str(error), "correct the name") from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, str(error), "correct the name or the file") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise _unreadable(name, "it holds no mapping of flags to values", "write `flag: value`")
    return list(_words(content))


def _words(content: dict[str, Any]) -> Iterator[str]:
    for key, value in content.items():
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
            yield from (f"--{key}", json.dumps(value, default=str))
        else:
            yield from (f"--{key}", str(value))


def _unreadable(name: str, why: str, fix: str) -> CheckError:
    return CheckError(
        Code.QUESTION_FLAG,
        given=f"--config {shown(name, 200)} cannot be read: {why}",
        allowed="a YAML file of vLLM's flags",
        fix=fix,
    )
