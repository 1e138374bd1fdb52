"""The mistakes of ``adaptive_verification_config``, with the codes that they have everywhere.

Rule: what another rule tells is not told twice.
"""

from collections.abc import Collection, Iterator

from vllm_av.config.block import BLOCK
from vllm_av.config.whole import examine_spec
from vllm_av.errors import Code, ConfigError
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Reason, ReasonCode, Weight
from vllm_av.preflight.rules.words import SPEC, spec_place

_ARGMAX = "use_local_argmax_reduction"


def block(setup: Setup, told: Collection[ReasonCode | Code]) -> Iterator[Reason]:
    """Every mistake.

    Args:
        told: the codes of the reasons that other rules gave.
    """
    spec = dict(setup.speculative)
    spec["method"] = setup.draft.method
    spec["num_speculative_tokens"] = setup.draft.num_speculative_tokens
    if ReasonCode.DRAFTER in told:
        del spec["method"]
    if ReasonCode.LOCAL_ARGMAX in told:
        spec.pop(_ARGMAX, None)
    verdict = examine_spec(spec)
    where = setup.place("speculative_config", SPEC)
    yield from (_reason(error, where) for error in (verdict.errors if verdict else ()))
    if spec.get(BLOCK) is not None and not setup.patched:
        yield Reason(
            Code.CONFIG_UNPATCHED,
            Weight.REFUSAL,
            asked=f"{BLOCK} is set",
            found=f"an unpatched vLLM {setup.vllm} cannot read it",
            where=spec_place(setup, BLOCK),
            fix="run `vllm-av patch apply`",
        )


def _reason(error: ConfigError, where: str) -> Reason:
    return Reason(error.code, Weight.REFUSAL, error.given, error.allowed, where, error.fix)
