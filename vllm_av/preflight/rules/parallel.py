"""Do heads and ranks divide as vLLM shares them out?

vLLM refuses what does not when it makes its config, with adaptive verification or without.

Rule: ``ModelConfig.verify_with_parallel_config`` of the target and of the drafter, and
``ParallelConfig._validate_parallel_config``; what the config does not say is not judged.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from vllm_av.preflight.facts import LayerKind, Setup
from vllm_av.preflight.reasons import Change, Reason, ReasonCode
from vllm_av.preflight.rules.words import flag, key, refusal, spec_place

_LATENT = (LayerKind.MLA, LayerKind.MLA_SPARSE)
_PLAIN = (LayerKind.FULL, LayerKind.SLIDING, LayerKind.CHUNKED)
_DRAFT = "draft_tensor_parallel_size"


def over_ranks(setup: Setup, count: int) -> tuple[Change, ...]:
    """The target over ``count`` ranks, and what then no longer fits."""
    changes = [flag("tensor-parallel-size", count)]
    if setup.decode_context_parallel_size > 1 and _why(replace(setup, tensor_parallel_size=count)):
        changes.append(flag("decode-context-parallel-size", 1))
    if setup.speculative.get(_DRAFT) not in (None, 1, count):
        changes.append(key(_DRAFT))
    return tuple(changes)


def heads(setup: Setup) -> Iterator[Reason]:
    """Query heads over the tensor-parallel ranks."""
    ranks = setup.tensor_parallel_size
    models = {"target": setup.target.num_heads}
    if setup.speculative.get(_DRAFT) != 1:
        models["drafter"] = setup.draft.num_heads
    odd = {name: count for name, count in models.items() if count % ranks}
    if not odd:
        return
    every = math.gcd(*models.values())
    fewer = max(count for count in range(1, ranks) if every % count == 0)
    told = " and ".join(f"{count} attention heads of the {name}" for name, count in odd.items())
    yield refusal(
        ReasonCode.PARALLEL,
        *over_ranks(setup, fewer),
        asked=f"tensor parallelism over {ranks} ranks",
        found=f"{told} are no multiple of {ranks}",
        where=setup.place("tensor_parallel_size", "--tensor-parallel-size"),
        source="model.py:ModelConfig.verify_with_parallel_config",
    )


def drafter(setup: Setup) -> Iterator[Reason]:
    """The drafter's own number of ranks."""
    asked = setup.speculative.get(_DRAFT)
    if asked in (None, 1, setup.tensor_parallel_size):
        return
    yield refusal(
        ReasonCode.PARALLEL,
        key(_DRAFT),
        asked=f"a drafter over {asked} ranks",
        found="vLLM lets it have 1, or as many as the target",
        where=spec_place(setup, _DRAFT),
        source="speculative.py:SpeculativeConfig._verify_and_get_draft_tp",
    )


def context(setup: Setup) -> Iterator[Reason]:
    """Ranks, and heads without a latent, over the decode-context-parallel ranks."""
    size = setup.decode_context_parallel_size
    if size == 1 or not (why := _why(setup)):
        return
    yield refusal(
        ReasonCode.PARALLEL,
        flag("decode-context-parallel-size", 1),
        asked=f"decode context parallelism over {size} ranks",
        found="; ".join(why),
        where=setup.place("decode_context_parallel_size", "--decode-context-parallel-size"),
        source="model.py:ModelConfig.verify_with_parallel_config",
    )


def _why(setup: Setup) -> list[str]:
    return [*_ranks(setup), *_heads(setup)]


def _ranks(setup: Setup) -> Iterator[str]:
    size, ranks = setup.decode_context_parallel_size, setup.tensor_parallel_size
    prefill = setup.prefill_context_parallel_size
    if prefill == 1 and ranks % size:
        yield f"the {ranks} tensor-parallel ranks are no multiple of it"
    if prefill > 1 and size not in (prefill, ranks * prefill):
        yield (
            f"beside prefill context parallelism over {prefill} ranks it has to be 1, {prefill} "
            f"or {ranks * prefill}"
        )


def _heads(setup: Setup) -> Iterator[str]:
    size, ranks = setup.decode_context_parallel_size, setup.tensor_parallel_size
    kinds = {group.kind for group in setup.target.groups}
    own = any((group.backend or "").startswith("DEEPSEEK_") for group in setup.target.groups)
    keys = setup.target.num_kv_heads
    if not keys or own or not kinds.isdisjoint(_LATENT) or kinds.isdisjoint(_PLAIN):
        return
    if ranks <= keys:
        yield (
            f"without a latent there have to be more tensor-parallel ranks ({ranks}) than "
            f"key-value heads ({keys})"
        )
    elif size > ranks // keys:
        yield f"{ranks} ranks of {keys} key-value heads allow at most {ranks // keys}"
    if setup.target.num_heads // keys % size:
        yield f"{setup.target.num_heads // keys} query heads per key-value head are no multiple"


RULES = (heads, drafter, context)
