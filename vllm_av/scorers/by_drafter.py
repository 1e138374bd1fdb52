"""What ``auto`` takes for each type of drafter, for ``vllm-av scorers`` and the README.

Rule: the choice is :func:`vllm_av.scorers.select.select`'s own, never written down a second time.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from vllm_av.drafters import SUPPORTED, TYPES, DrafterType, DraftLogits, Head
from vllm_av.scorers.registry import AUTO
from vllm_av.scorers.select import select

_CLOSING = (
    "K is num_speculative_tokens. What is trimmed was drafted before: a drafter of one pass loses",
    "little by that; MTP, EAGLE and a draft model have paid a pass for each draft, and gain less.",
)


@dataclass(frozen=True)
class ByDrafter:
    """One type; ``scorer`` is None where adaptive verification is refused."""

    drafter: DrafterType
    scorer: str | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        row = self.drafter
        return {
            "name": row.name,
            "title": row.title,
            "methods": row.methods,
            "architectures": row.architectures,
            "speculator": row.speculator,
            "vllm": row.vllm,
            "draft_logits": str(row.logits),
            "local_argmax_spares_logits": row.local_argmax,
            "confidence_head": str(row.head),
            "passes": str(row.passes),
            "drafting": row.drafting,
            "start": asdict(row.start) if row.start else None,
            "scorer": self.scorer,
            "reason": self.reason,
        }

    @property
    def heading(self) -> str:
        """What this type has in common with others."""
        if self.scorer is None:
            return "no adaptive verification; the last column says why"
        return f"{AUTO} takes {self.scorer}: {self.reason}"

    def cells(self) -> tuple[str, str, str]:
        """For people: the type, its methods, and what drafting costs or why it is refused."""
        row = self.drafter
        only = "" if row.vllm == SUPPORTED else f" (vLLM {', '.join(row.vllm)})"
        last = self.reason if self.scorer is None else row.drafting
        return f"{row.title}{only}", ", ".join(row.methods), last


def choose(drafter: DrafterType) -> ByDrafter:
    """What ``auto`` takes for a type, under settings that leave it its logits."""
    if drafter.refusal is not None:
        return ByDrafter(drafter, None, drafter.refusal)
    has_head = drafter.head is Head.HAS
    has_logits = drafter.logits is not DraftLogits.NONE
    selection = select(AUTO, has_head=has_head, has_logits=has_logits)
    return ByDrafter(drafter, selection.name, selection.reason)


def by_drafter() -> list[ByDrafter]:
    """Every type, those of one heading together, the refused ones last."""
    rows = [choose(row) for row in TYPES]
    headings = list(dict.fromkeys(row.heading for row in rows))
    return sorted(rows, key=lambda row: (row.scorer is None, headings.index(row.heading)))


def lines() -> Iterator[str]:
    """The table for people."""
    yield "drafters"
    for heading, group in groupby(by_drafter(), key=lambda row: row.heading):
        yield f"  {heading}"
        cells = [row.cells() for row in group]
        wide, middle = (max(len(row[column]) for row in cells) for column in (0, 1))
        yield from (f"    {row[0]:{wide}}  {row[1]:{middle}}  {row[2]}" for row in cells)
    yield from (f"  {line}" for line in _CLOSING)
