"""The cells of the matrix: pairs of everything, not the product.

Three factors: the drafter's type, what verifies (a fixed number of drafts, or adaptive verification
with this scorer), and the temperature. Each two levels of two factors meet in some cell. An engine
costs a second, greedy tokens a part of that, a sampled distribution five; so each type meets each
verification at temperature 0, but at temperature 1 only ``auto``, and each verification only one
type more.

Rule: a pure function of the levels; no vLLM here.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

FIXED = "fixed"
AUTO = "auto"
HEAD = "confidence_head"
VERIFICATIONS = (AUTO, "online_estimator", FIXED, "max_probability", HEAD)
TEMPERATURES = (0, 1)
Pair = tuple[tuple[str, Any], tuple[str, Any]]


class Cell(NamedTuple):
    """``verification`` is :data:`FIXED`, or the ``scorer`` that the user writes."""

    drafter: str
    verification: str
    temperature: int


def admissible(cell: Sequence[object], with_head: Sequence[str]) -> bool:
    """Whether there is such a thing: only a head's own scorer asks for something of the type."""
    return HEAD not in cell or cell[0] in with_head


def cells(drafters: Sequence[str], with_head: Sequence[str]) -> list[Cell]:
    """All cells at temperature 0, and some at temperature 1; in the order of the drafters."""
    cold = [cell for cell in _product(drafters, 0) if admissible(cell, with_head)]
    hot = [cell for cell in _product(drafters, 1) if admissible(cell, with_head)]
    chosen = cold + [cell for cell in hot if cell.verification == AUTO]
    met = {pair for cell in chosen for pair in pairs(cell)}
    while missing := {pair for cell in hot for pair in pairs(cell)} - met:
        crowd = Counter(cell.drafter for cell in chosen if cell.temperature)

        def worth(cell: Cell, missing: set[Pair] = missing, crowd: Counter[str] = crowd) -> Any:
            place = drafters.index(cell.drafter)  # the last are those with most to choose from
            return len(missing & set(pairs(cell))), -crowd[cell.drafter], place

        best = max(hot, key=worth)
        chosen.append(best)
        met |= set(pairs(best))
    return sorted(chosen, key=lambda cell: drafters.index(cell.drafter))


def pairs(cell: Cell) -> Iterator[Pair]:
    """Each two of the cell's levels, with the names of their factors."""
    return combinations(zip(Cell._fields, cell, strict=True), 2)


def _product(drafters: Sequence[str], temperature: int) -> Iterator[Cell]:
    for drafter in drafters:
        for verification in VERIFICATIONS:
            yield Cell(drafter, verification, temperature)
