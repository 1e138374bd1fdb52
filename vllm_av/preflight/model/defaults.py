"""What a config leaves unsaid: the values that transformers' config classes have of their own.

``defaults.json`` holds them for the types of model that this package knows the layers of, as they
stand in transformers 5.19; a contract test holds it against the installed classes. So do these
functions for the patterns of layers that some of those classes write where a config has none.
Left out is DeepSeek V3.2's ``index_topk``: vLLM gives V3's class that name in the same process.

Rule: a key that is there is never replaced.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from vllm_av.preflight.model import shape
from vllm_av.preflight.model.attention import FULL, SLIDING
from vllm_av.preflight.model.fields import MOST_LAYERS, Fields

_FILE = Path(__file__).with_name("defaults.json")


@cache
def of_types() -> Mapping[str, Mapping[str, Any]]:
    """Type of model -> key -> value."""
    found: dict[str, dict[str, Any]] = json.loads(_FILE.read_text("utf-8"))
    return found


def filled(text: Fields, fallback: str | None = None) -> Fields:
    """The same config with what its class would add.

    Args:
        fallback: the type, where the config names none.

    Raises:
        CheckError: a number that a pattern hangs on is wrong.
    """
    kind = text.text("model_type") or fallback
    if kind is None:
        return text
    text = text.with_defaults(of_types().get(kind, {}))
    pattern = _PATTERNS.get(kind)
    if pattern is None or "layer_types" in text:
        return text
    return text.replaced(layer_types=pattern(text))


def _full_every(step: int, *names: str, sliding: str = SLIDING) -> Callable[[Fields], list[str]]:
    """The last of every ``step`` layers is full; a key may say another step."""

    def pattern(text: Fields) -> list[str]:
        each = step
        if names:
            each = text.count(*names, most=MOST_LAYERS, least=0, default=step)
        return [
            sliding if each == 0 or (index + 1) % each else FULL
            for index in range(shape.layers(text))
        ]

    return pattern


def _alike(kind: str) -> Callable[[Fields], list[str]]:
    """All of one type."""
    return lambda text: [kind] * shape.layers(text)


def _full_first(text: Fields) -> list[str]:
    """The first of every four layers is full."""
    return [SLIDING if index % 4 else FULL for index in range(shape.layers(text))]


def _full_from_the_end(text: Fields) -> list[str]:
    """The last layer is full, and every fourth before it."""
    total = shape.layers(text)
    return [SLIDING if (total - 1 - index) % 4 else FULL for index in range(total)]


def _exaone(text: Fields) -> list[str]:
    """Every fourth is full, and where there is no window, none slides."""
    total = shape.layers(text)
    if shape.window(text) is None:
        return [FULL] * total
    step = text.get("sliding_window_pattern")
    if isinstance(step, str):  # such as LLLG
        return [FULL if step[index % len(step)] == "G" else SLIDING for index in range(total)]
    return _full_every(4, "sliding_window_pattern")(text)


_PATTERNS: Mapping[str, Callable[[Fields], list[str]]] = {
    "afmoe": _full_every(4, "global_attn_every_n_layers"),
    "cohere2": _full_every(4, "sliding_window_pattern"),
    "cohere2_moe": _full_every(4, "sliding_window_pattern"),
    "cwm": _full_first,
    "exaone4": _exaone,
    "exaone_moe": _exaone,
    "gemma2": _full_every(2),
    "gemma3_text": _full_every(6, "sliding_window_pattern"),
    "gemma3n_text": _full_every(5),
    "gemma4_text": _full_every(6),
    "gemma4_unified_text": _full_every(6),
    "granite_swa": _full_first,
    "granitemoehybrid": _alike("linear_attention"),
    "granitemoe_swa": _full_first,
    "mellum": _alike(FULL),
    "muse_glimmer_text": _full_from_the_end,
    "olmo3": _full_every(4),
    "olmo_hybrid": _full_every(4, sliding="linear_attention"),
    "vaultgemma": _full_every(2),
}
