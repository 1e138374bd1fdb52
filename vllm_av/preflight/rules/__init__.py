"""The rules: each takes a setup and yields the reasons that it finds.

Rule: all rules are asked, whatever the others found; the order of the answer is theirs, refusals
first.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from vllm_av.preflight.backends.flashinfer import FlashInfer
from vllm_av.preflight.capabilities import Capabilities, LayerAnswer
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Reason, Verdict, Weight, verdict
from vllm_av.preflight.rules import (
    cost_table,
    costs,
    deepseek,
    drafter,
    fast_paths,
    features,
    graphs,
    parallel,
    runner,
    scorer,
    target,
    unseen,
)
from vllm_av.preflight.rules.block import block
from vllm_av.preflight.rules.draft_layers import draft_layers
from vllm_av.preflight.rules.flashinfer import flashinfer as about_flashinfer
from vllm_av.preflight.rules.layers import layers
from vllm_av.preflight.rules.scorer import Scorer

__all__ = ["Judgement", "Scorer", "judge"]

_RULES = (
    *runner.RULES,
    *parallel.RULES,
    *graphs.RULES,
    *features.RULES,
    *drafter.RULES,
    *target.RULES,
    *scorer.RULES,
    *deepseek.RULES,
    *unseen.RULES,
    *costs.RULES,
    *cost_table.RULES,
    *fast_paths.RULES,
)
_ORDER = (Weight.REFUSAL, Weight.UNKNOWN, Weight.CAUTION)


@dataclass(frozen=True)
class Judgement:
    """What the rules say.

    Args:
        reasons: all that hold.
        layers: what vLLM would do with each group of the target's layers.
        scorer: what would predict acceptance.
    """

    reasons: tuple[Reason, ...]
    layers: tuple[LayerAnswer, ...]
    scorer: Scorer

    @property
    def verdict(self) -> Verdict:
        """In a word."""
        return verdict(self.reasons)


def judge(
    setup: Setup, capabilities: Capabilities | None, flashinfer: FlashInfer | None = None
) -> Judgement:
    """Ask every rule.

    Args:
        setup: the question.
        capabilities: who knows the attention backends; None where the layers are judged elsewhere.
        flashinfer: the one that vLLM would use; None where that is not known.
    """
    answers: tuple[LayerAnswer, ...] = ()
    if capabilities is not None and setup.gpu is not None:
        answers = tuple(capabilities.answer(setup, group) for group in setup.target.groups)
    found = list(_all(setup, answers, flashinfer))
    found.sort(key=lambda reason: _ORDER.index(reason.weight))  # stable: the rules' order stays
    return Judgement(tuple(found), answers, scorer.scorer(setup))


def _all(
    setup: Setup, answers: tuple[LayerAnswer, ...], flashinfer: FlashInfer | None
) -> Iterator[Reason]:
    found = [reason for rule in _RULES for reason in rule(setup)]
    yield from found
    yield from block(setup, {reason.code for reason in found})
    yield from layers(setup, answers)
    yield from draft_layers(setup, answers)
    yield from fast_paths.other_backend(setup, answers)
    yield from about_flashinfer(setup, answers, flashinfer)
