"""From the words of a flag to its value, as vLLM reads it.

Rule: a value that vLLM would refuse is a mistake with the flag's name in it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vllm_av.config.text import read_object, shown
from vllm_av.errors import CheckError, Code, ConfigError
from vllm_av.preflight.flags.words import Given

_MOST = 2**31 - 1
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_LEVELS = ("0", "1", "2", "3")

Reader = Callable[[str], Any]


def read(given: Given) -> Any:
    """The value of a flag in :data:`LOOKED_AT`, keys not applied.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``.
    """
    if given.keys and given.name not in OBJECTS:
        raise CheckError(
            Code.QUESTION_FLAG,
            given=f"{given.place} gives a key of a flag that has none",
            allowed=f"keys of {', '.join(f'--{name}' for name in sorted(OBJECTS))}",
            fix="remove what follows the point",
        )
    return LOOKED_AT[given.name](given)


def _text(given: Given) -> str:
    value = str(given.value)
    if not value.strip():
        raise wrong(given, "a name")
    return value


def _one_of(*names: str) -> Callable[[Given], str]:
    def choice(given: Given) -> str:
        value = _text(given)
        if value not in names:
            raise wrong(given, f"one of {', '.join(names)}")
        return value

    return choice


def _maybe_text(given: Given) -> str | None:
    value = _text(given)
    return None if value.lower() in ("none", "auto") else value


EXECUTORS = ("external_launcher", "mp", "ray", "uni")


def _executor(given: Given) -> str | None:
    """One of vLLM's, or a class that it imports by its name."""
    value = _text(given)
    if value.lower() == "none":
        return None
    parts = value.split(".")
    if value not in EXECUTORS and not (len(parts) > 1 and all(map(str.isidentifier, parts))):
        raise wrong(given, f"one of {', '.join(EXECUTORS)}, or package.Class")
    return value


def _switch(given: Given) -> bool:
    return bool(given.value)


def _count(given: Given) -> int:
    return _whole(given, str(given.value), 1)


def _count_or_zero(given: Given) -> int:
    return _whole(given, str(given.value), 0)


def _counts(given: Given) -> list[int]:
    words = given.value if isinstance(given.value, tuple) else (str(given.value),)
    return [_whole(given, word, 1) for word in words]


def _whole(given: Given, word: str, least: int, more: str = "") -> int:
    number = human(word)
    if number is None or not least <= number <= _MOST:
        raise wrong(given, f"a whole number from {least} to {_MOST}{more}")
    return number


def _length(given: Given) -> int | None:
    """None for vLLM's own choice."""
    if str(given.value) in ("-1", "auto"):
        return None
    return _whole(given, str(given.value), 1, ", or -1 or auto for the longest that fits")


def human(word: str) -> int | None:
    """``1k`` is 1000, ``1K`` 1024, as vLLM has it; None where it is no whole number."""
    word = word.strip()
    if found := _HUMAN.fullmatch(word):
        number, unit = found[1], found[2]
        if unit.islower():
            return int(float(number) * 1000 ** _POWERS[unit])
        return int(number) * 1024 ** _POWERS[unit.lower()] if "." not in number else None
    return int(word) if re.fullmatch(r"[+-]?\d{1,18}", word) else None


def _level(given: Given) -> int:
    word = str(given.value).upper().removeprefix("O")
    if word not in _LEVELS:
        raise wrong(given, f"one of {', '.join(_LEVELS)}")
    return int(word)


def _object(given: Given) -> Any:
    """An object, or the value of one of its keys."""
    text = str(given.value)
    if given.keys:
        value = _part(text)
        if given.appends:
            value = text.split(",")
        for key in reversed(given.keys):
            value = {key: value}
        return value
    if text.strip().lower() == "none":
        return {}
    try:
        value = read_object(text, f"the value of {given.place}")
    except ConfigError as error:
        raise CheckError(
            Code.QUESTION_FLAG,
            given=error.given,
            allowed=error.allowed,
            fix="correct it, and put it between single quotes",
        ) from None
    if not isinstance(value, Mapping):
        raise wrong(given, 'a JSON object, {"key": value, ...}')
    return value


def _part(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = human(text)
        return text if number is None else number


def wrong(given: Given, allowed: str) -> CheckError:
    """A value that vLLM would refuse."""
    value = given.value
    told = " ".join(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
    return CheckError(
        Code.QUESTION_FLAG,
        given=f"{given.place} is {shown(told)}",
        allowed=allowed,
        fix="correct the value, or remove the flag for vLLM's default",
    )


_KINDS: dict[Callable[[Given], Any], str] = {
    _text: """
        hf-config-path kv-cache-dtype model revision spec-method spec-model
    """,
    _maybe_text: "all2all-backend attention-backend quantization",
    _executor: "distributed-executor-backend",
    _switch: """
        disable-sliding-window enable-batch-sharded-sampling enable-chunked-prefill enable-dbo
        enable-expert-parallel
        enable-lora enable-return-routed-experts enable-sleep-mode enforce-eager
        kv-sharing-fast-prefill language-model-only return-sampling-mask use-replayssm
    """,
    _count: """
        block-size data-parallel-size decode-context-parallel-size max-cudagraph-capture-size
        max-num-batched-tokens max-num-seqs nnodes pipeline-parallel-size
        prefill-context-parallel-size tensor-parallel-size
    """,
    _count_or_zero: "ubatch-size",
    # What is wrong with the drafter's numbers is told where a whole speculative config is judged.
    _length: "max-model-len",
    _counts: "cudagraph-capture-sizes",
    _level: "optimization-level",
    _object: """
        additional-config attention-config aux-output-config compilation-config hf-overrides
        kv-transfer-config speculative-config
    """,
}
LOOKED_AT: dict[str, Callable[[Given], Any]] = {
    name: reader for reader, names in _KINDS.items() for name in names.split()
}
"""The flags that the check reads, and how."""
LOOKED_AT["dtype"] = _one_of("auto", "bfloat16", "float", "float16", "float32", "half")
LOOKED_AT["model-impl"] = _one_of("auto", "terratorch", "transformers", "vllm")
LOOKED_AT["performance-mode"] = _one_of("balanced", "interactivity", "throughput")
LOOKED_AT["spec-tokens"] = lambda given: _part(str(given.value))
OBJECTS = frozenset(_KINDS[_object].split())
