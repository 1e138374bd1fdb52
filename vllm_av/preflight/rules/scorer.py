"""Which scorer would be in force, and whether it gets what it needs.

Rule: the choice is :func:`vllm_av.scorers.select.select`'s; what cannot be seen here is unknown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vllm_av.config.block import BLOCK
from vllm_av.drafters import HEAD_METHODS, DraftLogits
from vllm_av.errors import ScorerError
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.drafter import estimates, row_of
from vllm_av.preflight.rules.words import key, refusal, spec_place, switched, unknown
from vllm_av.scorers.registry import AUTO
from vllm_av.scorers.select import select

_HEAD = "confidence_head"
_ARGMAX = "use_local_argmax_reduction"
_UNLISTED = "its tensors cannot be listed here"
_FETCH = "fetch its model.safetensors.index.json, or the one file model.safetensors"


@dataclass(frozen=True)
class Scorer:
    """What would predict acceptance.

    Args:
        name: None where none can work, or where it hangs on what cannot be seen.
        reason: why it is that one.
        known: whether it is seen here which one it is, or that there is none.
    """

    name: str | None
    reason: str
    known: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


def choice(setup: Setup) -> str:
    """What the block names."""
    block = setup.speculative.get(BLOCK)
    named = block.get("scorer", AUTO) if isinstance(block, Mapping) else AUTO
    return named if isinstance(named, str) else AUTO


def scorer(setup: Setup) -> Scorer:
    """The scorer in force."""
    if not estimates(setup):
        return Scorer(None, "this drafter makes no estimate of acceptance")
    head, named = setup.draft.has_head, choice(setup)
    if head is None and named in (AUTO, _HEAD) and setup.draft.method in HEAD_METHODS:
        other = "online_estimator" if named == AUTO else "none"
        return Scorer(
            None,
            f"confidence_head where the checkpoint has one, else {other}: {_UNLISTED}; {_FETCH}",
            known=False,
        )
    row = row_of(setup)
    logits = row is not None and row.logits is not DraftLogits.NONE
    try:
        found = select(named, has_head=bool(head), has_logits=logits and not _spared(setup))
    except ScorerError as error:
        return Scorer(None, error.given)
    return Scorer(found.name, found.reason)


def head(setup: Setup) -> Iterator[Reason]:
    """A head that is asked for by name."""
    draft = setup.draft
    # Of the other methods the block's own check says that they never have one.
    if choice(setup) != _HEAD or draft.method not in HEAD_METHODS or draft.has_head:
        return
    word = unknown if draft.has_head is None else refusal
    found = _UNLISTED if draft.has_head is None else "the checkpoint holds none"
    yield word(
        ReasonCode.SCORER,
        key(f"{BLOCK}.scorer", AUTO),
        asked="the scorer confidence_head",
        found=f"{found} ({draft.source})",
        where=spec_place(setup, BLOCK),
        fix=f"or {_FETCH}" if draft.has_head is None else None,
    )


def local_argmax(setup: Setup) -> Iterator[Reason]:
    """Without logits only a head estimates."""
    if not _spared(setup) or not estimates(setup):
        return
    draft = setup.draft
    found = "the draft logits, from which acceptance is estimated, are never made"
    if draft.method in HEAD_METHODS:
        if draft.has_head:
            return
        lacks = "holds no" if draft.has_head is False else "may hold no"
        found = f"{found}, and the checkpoint {lacks} confidence head"
    unseen = draft.method in HEAD_METHODS and draft.has_head is None
    word = unknown if unseen else refusal
    yield word(
        ReasonCode.LOCAL_ARGMAX,
        key(_ARGMAX, False),
        asked="the best draft token of each rank alone (use_local_argmax_reduction)",
        found=found,
        where=spec_place(setup, _ARGMAX),
        fix=f"or {_FETCH}" if unseen else None,
        source="speculative.py:SpeculativeConfig.__post_init__",
    )


def _spared(setup: Setup) -> bool:
    return switched(setup, _ARGMAX)


RULES = (head, local_argmax)
