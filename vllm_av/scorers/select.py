"""Which scorer is used: a function of what the user wrote and of what the drafter offers.

``auto`` is vLLM's own rule: the checkpoint's confidence head where it has one, else the online
estimator. A name overrides that in both directions.

Rule: nothing is chosen that cannot work, and nothing is replaced silently.
"""

from dataclasses import dataclass

from vllm_av.errors import Code, ScorerError
from vllm_av.scorers.registry import AUTO

_NO_LOGITS = (
    "the drafter makes no logits, because use_local_argmax_reduction is set",
    "set use_local_argmax_reduction to false",
)
_NO_HEAD = "the drafter's checkpoint has no confidence head"


@dataclass(frozen=True)
class Selection:
    """A scorer's name, and why it is that one."""

    name: str
    reason: str


def select(choice: str, *, has_head: bool, has_logits: bool) -> Selection:
    """Choose.

    Args:
        choice: ``auto``, or the name of a scorer.
        has_head: whether the drafter's checkpoint has a confidence head.
        has_logits: whether the drafter makes logits over its vocabulary.

    Raises:
        ScorerError: ``AV-SCORER-NEEDS`` where neither is there.
    """
    if has_head:
        auto = Selection("confidence_head", "the drafter's checkpoint has a confidence head")
    else:
        auto = Selection("online_estimator", _NO_HEAD)
    if choice != AUTO:
        same = "auto would choose it too" if choice == auto.name else f"auto is {auto.name}"
        return Selection(choice, f"named in adaptive_verification_config; {same}")
    if not has_head and not has_logits:
        raise ScorerError(
            Code.SCORER_NEEDS,
            given=f"no scorer can work: {_NO_HEAD}, and {_NO_LOGITS[0]}",
            allowed="a drafter with logits or with a confidence head",
            fix=_NO_LOGITS[1],
        )
    return auto


def require(
    name: str,
    *,
    needs_head: bool,
    needs_logits: bool,
    has_head: bool,
    has_logits: bool,
) -> None:
    """Refuse a scorer that needs what the drafter has not.

    Raises:
        ScorerError: ``AV-SCORER-NEEDS``.
    """
    if needs_head and not has_head:
        raise ScorerError(
            Code.SCORER_NEEDS,
            given=f"the scorer {name!r} needs a confidence head, and {_NO_HEAD}",
            allowed="a scorer that reads logits, such as online_estimator, or auto",
            fix=f'set "scorer": "{AUTO}"',
        )
    if needs_logits and not has_logits:
        raise ScorerError(
            Code.SCORER_NEEDS,
            given=f"the scorer {name!r} needs draft logits, and {_NO_LOGITS[0]}",
            allowed="a drafter with logits" + (", or confidence_head" if has_head else ""),
            fix=_NO_LOGITS[1],
        )
