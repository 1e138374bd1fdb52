"""Does the installed FlashInfer take queries of several lengths, where vLLM decodes by it?

Rule: only where its trtllm-gen kernel would run; of the others the layers' own rule speaks.
"""

from collections.abc import Iterator, Sequence

from vllm_av.preflight.backends.flashinfer import DISTRIBUTION, FUNCTION, LENGTHS, FlashInfer
from vllm_av.preflight.backends.kernels import TRTLLM_GEN
from vllm_av.preflight.capabilities import LayerAnswer
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.groups import describe
from vllm_av.preflight.rules.layers import instead
from vllm_av.preflight.rules.words import refusal, unknown

_SINCE = "0.7.2"
"""The version that was read."""


def flashinfer(
    setup: Setup, answers: Sequence[LayerAnswer], found: FlashInfer | None
) -> Iterator[Reason]:
    """What is installed.

    Args:
        found: None where another environment than this one is asked about.
    """
    for answer in answers:
        chosen = answer.chosen
        if found is None or chosen is None or found.takes_lengths:
            continue
        if chosen.name != "FLASHINFER" or not chosen.note.startswith(TRTLLM_GEN):
            continue
        word = refusal
        if found.version is None:
            told = f"{DISTRIBUTION} is not installed"
        elif found.takes_lengths is None:
            told = f"the source of {DISTRIBUTION} {found.version} cannot be read"
            word = unknown
        else:
            told = f"{FUNCTION} of {DISTRIBUTION} {found.version} takes no {' and '.join(LENGTHS)}"
        changes = instead(setup, answer, answers, without="FLASHINFER")
        install = f"pip install {DISTRIBUTION}=={_SINCE}"
        yield word(
            ReasonCode.FLASHINFER,
            *changes,
            asked=f"{describe(answer.group)} through FLASHINFER ({TRTLLM_GEN})",
            found=f"{told}, by which it would be told of trimmed queries",
            where=answer.group.where,
            fix=f"or {install}" if changes else install,
            source=found.source,
        )
        return
