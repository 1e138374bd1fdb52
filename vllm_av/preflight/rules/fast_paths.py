"""The faster ways that vLLM leaves as soon as adaptive verification is on.

Rule: only where the way would be taken without it, as far as the setup shows.
"""

from collections.abc import Iterator, Sequence

from vllm_av.preflight.capabilities import LayerAnswer
from vllm_av.preflight.facts import LayerKind, Setup
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.groups import describe
from vllm_av.preflight.rules.words import SPEC, caution


def indexer(setup: Setup) -> Iterator[Reason]:
    """On Hopper the indexer takes a row for each query, and reads the keys once for each."""
    gpu = setup.gpu
    if (
        gpu is not None
        and gpu.platform == "cuda"
        and gpu.major == 9
        and setup.max_query_len in (2, 4)
        and any(group.kind is LayerKind.INDEXER for group in setup.target.groups)
    ):
        yield caution(
            ReasonCode.FAST_PATH,
            asked=f"the sparse indexer's decode of {setup.max_query_len} queries at once",
            found="vLLM takes them one by one, and reads the keys once for each, since the drafts "
            "of a request then vary in number",
            where=setup.place("speculative_config", SPEC),
            fix="compare the two with traffic of your own: a fixed number of drafts keeps it",
            source="indexer.py:_use_flattening",
        )


def other_backend(setup: Setup, answers: Sequence[LayerAnswer]) -> Iterator[Reason]:
    """A patched selector passes over vLLM's first choice where that does not suffice."""
    for answer in answers:
        chosen, first = answer.chosen, answer.without
        if chosen is None or first is None or chosen.name == first.name:
            continue
        yield caution(
            ReasonCode.FAST_PATH,
            asked=f"{describe(answer.group)} through {first.name}, vLLM's own first choice here",
            found=f"it cannot verify trimmed drafts; vLLM takes {chosen.name} instead",
            where=answer.group.where,
            fix="compare the two with traffic of your own: without adaptive verification "
            f"{first.name} stays",
            source=first.source,
        )


RULES = (indexer,)
