"""What a scorer says about itself, asked without calling it.

Rule: every fault of a scorer from elsewhere is found at the start, all of them in one line.
"""

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from vllm_av.errors import Code, ScorerError, told
from vllm_av.scorers.base import Scorer


@dataclass(frozen=True)
class Traits:
    """The attributes of :class:`vllm_av.scorers.base.Scorer`."""

    needs_draft_logits: bool
    needs_confidence_head: bool
    needs_drawn_tokens: bool
    prefix_measurable: bool

    @property
    def lossy(self) -> bool:
        """Whether the output would not follow the target's distribution any more."""
        return self.needs_drawn_tokens or not self.prefix_measurable


def learns(scorer: type[Any]) -> bool:
    """Whether a class does anything with what it observes."""
    return getattr(scorer, "observe", None) is not Scorer.observe


def traits_of(name: str, scorer: Any) -> Traits:
    """Read the attributes of a class or of an object.

    Raises:
        ScorerError: ``AV-SCORER-BROKEN``.
    """
    with _answering(name):
        declared: dict[str, Any] = {
            field.name: getattr(scorer, field.name, None) for field in fields(Traits)
        }
    wrong = [
        f"{attribute} is {told(value, repr)} and must be True or False"
        for attribute, value in declared.items()
        if not isinstance(value, bool)
    ]
    if not wrong:
        if not (declared["needs_draft_logits"] or declared["needs_confidence_head"]):
            wrong.append("it needs neither draft logits nor a confidence head: it predicts nothing")
        if declared["needs_drawn_tokens"] and not declared["needs_draft_logits"]:
            wrong.append("drawn tokens come with draft logits, which it does not need")
    _refuse(name, wrong)
    return Traits(**declared)


def check_methods(name: str, scorer: Any, traits: Traits) -> None:
    """See that an object has every method that it will be asked for, with those parameters.

    Raises:
        ScorerError: ``AV-SCORER-BROKEN``.
    """
    wanted = {"observe": ["idx_mapping", "num_sampled", "num_rejected", "mask"], "snapshot": []}
    if traits.needs_draft_logits:
        drawn = ["drawn_tokens"] if traits.needs_drawn_tokens else []
        wanted["predict"] = [
            "logits", "idx_mapping", "draft_step", "temperature", "out", *drawn,
        ]  # fmt: skip
    if traits.needs_confidence_head:
        wanted["predict_block"] = ["hidden_states", "markov_embeds", "out"]
    with _answering(name):
        wrong = list(_wrong_methods(scorer, wanted))
    _refuse(name, wrong)


def _wrong_methods(scorer: Any, wanted: dict[str, list[str]]) -> Iterable[str]:
    for method, arguments in sorted(wanted.items()):
        call = f"{method}({', '.join(arguments)})"
        function = getattr(scorer, method, None)
        if not callable(function):
            yield f"it has no {call}"
            continue
        if getattr(type(scorer), method, None) in (Scorer.predict, Scorer.predict_block):
            yield f"it needs {call} and does not define it"
            continue
        try:
            inspect.signature(function).bind(*arguments)
        except (TypeError, ValueError):
            yield f"it cannot be called as {call}"


@contextmanager
def _answering(name: str) -> Iterator[None]:
    """Blame a scorer whose attributes raise when they are read."""
    try:
        yield
    except (Exception, SystemExit) as error:
        found = f"asked for an attribute it raised {type(error).__name__}: {told(error)}"
        raise _broken(name, [found]) from error


def _refuse(name: str, wrong: list[str]) -> None:
    if wrong:
        raise _broken(name, wrong)


def _broken(name: str, wrong: list[str]) -> ScorerError:
    return ScorerError(
        Code.SCORER_BROKEN,
        given=f"the scorer {name!r} is not as a scorer must be: {'; '.join(wrong)}",
        allowed="the attributes and methods of vllm_av.scorers.base.Scorer",
        fix="inherit from that class, which has defaults, or choose another scorer",
    )
