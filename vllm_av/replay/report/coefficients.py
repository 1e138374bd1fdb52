"""From the states of a learner to lines over time.

A state is what the learner calls its coefficients (``Learner.state``): numbers, lists of them, and
dicts of such lists. A list whose name begins with ``intercept`` has an entry for each position,
another one that is as long as ``knots`` has one for each temperature there.

Rule: nothing is known here of any one learner; counts and settings are no coefficients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

History = Sequence[tuple[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class Path:
    """A kind of coefficients over time.

    Attributes:
        title: what the learner calls it.
        names: of its entries.
        steps: decode steps, from 1.
        values: [steps, entries].
        refits: steps after which the values changed.
        ordered: whether the entries have an order, as positions and temperatures have.
    """

    title: str
    names: tuple[str, ...]
    steps: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]
    refits: tuple[float, ...] = ()
    ordered: bool = True


def paths_of(history: History) -> list[Path]:
    """Each kind of coefficients that the states hold, in their order."""
    if not history:
        return []
    steps = tuple(step or 0.5 for step, _ in history)  # the start stands before step 1
    refits = _refits(history)
    knots = _numbers(history[-1][1].get("knots"))
    states = [_flat(state) for _, state in history]
    found = []
    for title, last in states[-1].items():
        width = len(_numbers(last))
        values = tuple(_numbers(state.get(title)) for state in states)
        if title in _NO_COEFFICIENTS or not width or any(len(v) != width for v in values):
            continue
        if isinstance(last, list | tuple):
            names = _names(width, () if title.startswith("intercept") else knots)
        else:
            names = (title.replace("_", " "),)
        found.append(Path(title.replace("_", " "), names, steps, values, refits))
    return found


_NO_COEFFICIENTS = {"knots", "refits", "steps", "labels", "undone", "restarts", "name"}


def _flat(state: Mapping[str, Any]) -> dict[str, Any]:
    """``{"slopes": {"margin": [...]}}`` as ``{"slopes of margin": [...]}``."""
    found: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, Mapping):
            found.update({f"{key} of {inner}": each for inner, each in value.items()})
        else:
            found[key] = value
    return found


def _names(width: int, knots: Sequence[float]) -> tuple[str, ...]:
    if width == len(knots):
        return tuple(f"T {knot:g}" for knot in knots)
    return tuple(f"{k}" for k in range(width))


def _numbers(value: Any) -> tuple[float, ...]:
    if isinstance(value, bool) or value is None:
        return ()
    if isinstance(value, int | float):
        return (float(value),)
    if isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value):
        return tuple(map(float, value))
    return ()


def _refits(history: History) -> tuple[float, ...]:
    counts = [state.get("refits") for _, state in history]
    return tuple(
        float(step)
        for (step, _), now, before in zip(history[1:], counts[1:], counts, strict=False)
        if now != before
    )
