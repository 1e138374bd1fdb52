"""What else would let a group of layers pass, where no backend to name does.

Rule: each proposal was tried in the table of that vLLM before it is made.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.backends.gpus import named
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.capabilities import Candidate
from vllm_av.preflight.facts import LayerGroup, Setup
from vllm_av.preflight.reasons import Change
from vllm_av.preflight.rules.words import flag, key

_GPUS = ("sm80", "sm90", "sm100", "sm120", "gfx942", "gfx950")


def change(
    setup: Setup, group: LayerGroup, able: Callable[[Candidate], bool] | None = None
) -> tuple[Change, ...]:
    """The first single setting whose default, or lower value, lets these layers pass.

    Args:
        able: whether a backend passes; None for whether it suffices.
    """
    for fields, changes in _settings(setup):
        if _taken(replace(setup, **fields), group, able) is not None:
            return changes
    return ()


def gpu(setup: Setup, group: LayerGroup) -> str | None:
    """A GPU of the same maker on which vLLM's own choice passes, and that choice."""
    if setup.gpu is None:
        return None
    free = replace(setup, attention_backend=None, backend_per_kind={})
    for name in _GPUS:
        other = named(name)
        if other is None or other.platform != setup.gpu.platform:
            continue
        found = _taken(replace(free, gpu=other), group)
        if found is not None:
            return f"{name} has {found.name}"
    return None


def _settings(setup: Setup) -> Iterator[tuple[dict[str, Any], tuple[Change, ...]]]:
    if setup.kv_cache_dtype != "auto":
        yield {"kv_cache_dtype": "auto"}, (flag("kv-cache-dtype"),)
    if setup.block_size is not None:
        yield {"block_size": None}, (flag("block-size"),)
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(setup, name) > 1:
            yield {name: 1}, (flag(name.replace("_", "-"), 1),)
    if setup.features.get("use_replayssm"):
        kept = {name: value for name, value in setup.features.items() if name != "use_replayssm"}
        yield {"features": kept}, (flag("use-replayssm"),)
    for count in range(setup.draft.num_speculative_tokens - 1, 0, -1):
        draft = replace(setup.draft, num_speculative_tokens=count)
        yield {"draft": draft}, (key("num_speculative_tokens", count),)


def _taken(
    setup: Setup, group: LayerGroup, able: Callable[[Candidate], bool] | None = None
) -> Candidate | None:
    """What vLLM would take, where that passes."""
    if setup.vllm not in SUPPORTED:
        return None
    chosen = TableCapabilities(setup.vllm).answer(setup, group).chosen
    if chosen is None:
        return None
    return chosen if (able(chosen) if able else chosen.suffices(setup.max_query_len)) else None
