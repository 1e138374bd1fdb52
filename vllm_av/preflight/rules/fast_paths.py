"""The specialised decode paths that vLLM leaves as soon as adaptive verification is on.

Rule: only where the path would be taken without it, as far as the setup shows.
"""

from collections.abc import Iterator, Sequence

from vllm_av.preflight.capabilities import LayerAnswer
from vllm_av.preflight.facts import LayerKind, Setup
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.layers import describe
from vllm_av.preflight.rules.words import SPEC, caution

_WITHOUT = "0.32."


def kimi_k3(setup: Setup) -> Iterator[Reason]:
    """Its decode loop serves whole blocks."""
    gpu = setup.gpu
    if (
        gpu is None
        or not setup.target.architecture.startswith("KimiK3")
        or setup.vllm.startswith(_WITHOUT)
    ):
        return
    nvidia = (
        gpu.platform == "cuda"
        and gpu.major == 10
        and setup.tensor_parallel_size in (8, 16)
        and setup.draft.method == "dspark"
        and setup.draft.num_speculative_tokens <= 7
    )
    if nvidia or gpu.platform == "rocm":
        yield _off(
            setup,
            "Kimi K3's specialised decode loop",
            "models/kimi_k3/" + ("nvidia" if nvidia else "amd") + "/specialized_decode",
        )


def deepseek_v41(setup: Setup) -> Iterator[Reason]:
    """As above, on GB300."""
    gpu = setup.gpu
    fits = (
        gpu is not None
        and (gpu.platform, gpu.major, gpu.minor) == ("cuda", 10, 3)
        and setup.target.architecture.startswith("DeepseekV41")
        and setup.tensor_parallel_size == 4
        and setup.draft.method == "dspark"
        and not setup.vllm.startswith(_WITHOUT)
    )
    if fits:
        yield _off(
            setup,
            "DeepSeek V4.1's specialised decode loop",
            "models/deepseek_v41/nvidia/specialized_decode",
        )


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
        yield _off(
            setup,
            f"the sparse indexer's decode of {setup.max_query_len} queries at once",
            "indexer.py:_use_flattening",
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


def _off(setup: Setup, what: str, source: str) -> Reason:
    return caution(
        ReasonCode.FAST_PATH,
        asked=what,
        found="vLLM leaves it without a word where adaptive verification is on, since the drafts "
        "of a request then vary in number",
        where=setup.place("speculative_config", SPEC),
        fix="compare the two with traffic of your own: a fixed number of drafts keeps it",
        source=source,
    )


RULES = (kimi_k3, deepseek_v41, indexer)
