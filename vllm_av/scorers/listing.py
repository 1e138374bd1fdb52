"""What ``vllm-av scorers`` shows.

Rule: a scorer of another package is imported only when it is asked for by its name.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from vllm_av.errors import ScorerError
from vllm_av.scorers.registry import AUTO, OURS, Source, find, load, sources
from vllm_av.scorers.select import select
from vllm_av.scorers.traits import Traits, learns, traits_of


@dataclass(frozen=True)
class Entry:
    """One scorer; ``traits`` and ``learns`` are None where it was not imported.

    Args:
        meaning: the first line of its docstring, or what its distribution says of itself.
        problem: why it cannot be chosen, or None.
    """

    name: str
    origin: str
    meaning: str
    traits: Traits | None
    learns: bool | None
    problem: str | None

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        traits = asdict(self.traits) | {"lossy": self.traits.lossy} if self.traits else None
        return {
            "name": self.name,
            "origin": self.origin,
            "meaning": self.meaning,
            "traits": traits,
            "learns": self.learns,
            "problem": self.problem,
        }

    def lines(self) -> list[str]:
        """For people: its meaning, and what it is."""
        told = [self.meaning]
        if self.traits is not None:
            needs = []
            if self.traits.needs_draft_logits:
                needs.append("draft logits")
            if self.traits.needs_confidence_head:
                needs.append("a confidence head")
            lossy = 'lossy: needs "allow_lossy": true'
            told.append(f"needs {' and '.join(needs)}")
            told.append(lossy if self.traits.lossy else "prefix-measurable: the output stays exact")
            told.append("learns while it serves" if self.learns else "does not learn")
        elif self.problem is None:
            told.append(f"not imported yet: `vllm-av scorers {self.name}` does and says more")
        if self.problem is not None:
            told.append(f"cannot be chosen: {self.problem}")
        return told


@dataclass(frozen=True)
class Choice:
    """What ``auto`` chooses for one kind of drafter; ``scorer`` is None where it refuses."""

    has_head: bool
    has_logits: bool
    scorer: str | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)

    def line(self) -> str:
        """For people."""
        head = "a confidence head" if self.has_head else "no confidence head"
        logits = "draft logits" if self.has_logits else "no draft logits"
        return f"{head}, {logits}: {self.scorer or 'refused'} ({self.reason})"


def entries(name: str | None = None) -> list[Entry]:
    """Every scorer, or the one of that name, imported.

    Raises:
        ScorerError: the one of that name does not exist or is broken.
    """
    if name is not None:
        return [_imported(find(name))]
    listed = sources()
    bearers = Counter(source.name for source in listed)
    return [_entry(source, bearers[source.name]) for source in listed]


def choices() -> list[Choice]:
    """What ``auto`` chooses in each case."""
    cases = [(head, logits) for head in (True, False) for logits in (True, False)]
    return [_choice(*case) for case in cases]


def _choice(has_head: bool, has_logits: bool) -> Choice:
    try:
        selection = select(AUTO, has_head=has_head, has_logits=has_logits)
    except ScorerError as error:
        return Choice(has_head, has_logits, None, error.given)
    return Choice(has_head, has_logits, selection.name, selection.reason)


def _entry(source: Source, bearers: int) -> Entry:
    if source.name == AUTO:
        problem = f"no scorer may be called {AUTO}"
    elif bearers > 1:
        problem = f"{bearers} scorers have this name"
    elif source.origin == OURS:
        return _imported(source)
    else:
        problem = None
    return Entry(source.name, source.origin, source.summary or "", None, None, problem)


def _imported(source: Source) -> Entry:
    scorer = load(source.name)
    traits = traits_of(source.name, scorer)
    document = (scorer.__doc__ or "").strip()
    meaning = document.splitlines()[0] if document else source.summary or ""
    return Entry(source.name, source.origin, meaning, traits, learns(scorer), None)
