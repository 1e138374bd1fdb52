"""Which refusals go away where adaptive verification is switched off, as ``fixed_k`` does.

Rule: only what is known to be of adaptive verification alone; a mistake in its block, a setting
that vLLM refuses in any case, and whatever is not listed here stays.
"""

from collections.abc import Iterable

from vllm_av.preflight.reasons import Reason, ReasonCode, Weight

_OF_ADAPTIVE = frozenset(
    {
        ReasonCode.RUNNER,
        ReasonCode.GRAPHS,
        ReasonCode.PIPELINE,
        ReasonCode.LORA,
        ReasonCode.ROUTED_EXPERTS,
        ReasonCode.SAMPLING_MASK,
        ReasonCode.SHARDED_SAMPLING,
        ReasonCode.LOCAL_ARGMAX,
        ReasonCode.DRAFTER,
        ReasonCode.SCORER,
        ReasonCode.DRAFT_VOCABULARY,
        ReasonCode.LENS,
        ReasonCode.VARLEN,
    }
)


def not_of_adaptive(reasons: Iterable[Reason]) -> list[str]:
    """The codes of the refusals that stay, each once, in order."""
    left = (
        str(reason.code)
        for reason in reasons
        if reason.weight is Weight.REFUSAL and reason.code not in _OF_ADAPTIVE
    )
    return list(dict.fromkeys(left))
