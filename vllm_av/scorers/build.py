"""From what the user wrote to the scorer that vLLM calls.

Rule: everything that can be refused is refused before the scorer is built, the rest before it is
asked for a prediction.
"""

from typing import TYPE_CHECKING

from vllm_av.errors import Code, ScorerError
from vllm_av.scorers.base import ScorerContext
from vllm_av.scorers.guard import GuardedScorer, guarded
from vllm_av.scorers.registry import AUTO, load
from vllm_av.scorers.select import Selection, require, select
from vllm_av.scorers.traits import Traits, check_methods, traits_of

if TYPE_CHECKING:
    from vllm_av.config import AdaptiveVerificationConfig


def admit(config: "AdaptiveVerificationConfig", *, has_logits: bool) -> None:
    """Refuse what is known of a scorer before any weight is loaded: all but the head.

    Args:
        config: names the scorer; ``auto`` is left for :func:`build`.
        has_logits: whether the drafter makes logits.

    Raises:
        ScorerError: it does not exist, is broken, lossy, or needs logits that are not made.
    """
    name = config.scorer
    if name == AUTO:
        return
    traits = traits_of(name, load(name))
    require(
        name,
        needs_head=False,
        needs_logits=traits.needs_draft_logits,
        has_head=False,
        has_logits=has_logits,
    )
    _refuse_lossy(name, traits, config)


def build(context: ScorerContext) -> tuple[GuardedScorer, Selection]:
    """The scorer that ``context.config`` asks for, and why it is that one.

    Raises:
        ScorerError: it does not exist, is broken, does not fit the drafter, or is lossy.
    """
    offered = {
        "has_head": context.confidence_head is not None,
        "has_logits": context.has_draft_logits,
    }
    selection = select(context.config.scorer, **offered)
    name = selection.name
    kind = load(name, built_in=context.config.scorer == AUTO)
    _admit(name, traits_of(name, kind), context, offered)
    scorer = guarded(name, "its constructor", kind, context)
    # Asked again: an object may say something else than its class.
    traits = traits_of(name, scorer)
    _admit(name, traits, context, offered)
    check_methods(name, scorer, traits)
    return GuardedScorer(name, scorer, traits), selection


def _admit(name: str, traits: Traits, context: ScorerContext, offered: dict[str, bool]) -> None:
    require(
        name,
        needs_head=traits.needs_confidence_head,
        needs_logits=traits.needs_draft_logits,
        **offered,
    )
    _refuse_lossy(name, traits, context.config)


def _refuse_lossy(name: str, traits: Traits, config: "AdaptiveVerificationConfig") -> None:
    if traits.lossy and not config.allow_lossy:
        raise ScorerError(
            Code.SCORER_LOSSY,
            given=f"the scorer {name!r} {_confession(traits)}, so what is generated would not "
            "follow the target's distribution",
            allowed="a prefix-measurable scorer",
            fix='choose another scorer, or accept the bias by "allow_lossy": true',
        )


def _confession(traits: Traits) -> str:
    return "needs the drawn tokens" if traits.needs_drawn_tokens else "is not prefix-measurable"
