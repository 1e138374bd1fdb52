"""Which rows figures are of, and which the optimum is fitted on. One rule everywhere:

    fitted    the first half of the decode steps
    scored    the second half, and of that what comes from step ``from_step`` on (200), after which
              a learner has seen as much as it is held to

so that the optimum and every learner are scored on the very same rows. A trace of fewer than 400
steps is still cut in the middle; where nothing is left to score, it is refused.

Rule: only rows that are sound are scored (:attr:`Stream.usable`), masked ones never.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vllm_av.errors import Code, TraceError
from vllm_av.replay.stream import Stream

FROM_STEP = 200
MOST_EXACT = 12
"""Distinct temperatures up to which each is a regime of its own."""
EDGES = (0.05, 0.2, 0.4, 0.6, 0.85, 1.15)
"""Of the bins of more than that many, between the temperatures that are usual; 0, which is greedy,
is a bin of its own."""


@dataclass(frozen=True)
class Halves:
    """[n] each, of labelled rows.

    Attributes:
        fitted: for the optimum.
        scored: for everybody.
        begins: the first decode step that is scored.
    """

    fitted: NDArray[np.bool_]
    scored: NDArray[np.bool_]
    begins: int


def halves(stream: Stream, from_step: int | None = None) -> Halves:
    """Cut a trace.

    Args:
        from_step: no row before this one is scored; None: :data:`FROM_STEP`, where the trace goes
            on after it.

    Raises:
        TraceError: ``AV-REPLAY-EMPTY`` where no label is left on one of the sides.
    """
    middle = stream.steps // 2
    sound = stream.labelled & stream.usable
    if from_step is None:
        late = sound & (stream.step >= max(middle, FROM_STEP))
        from_step = FROM_STEP if late.any() else 0
    begins = max(middle, from_step)
    found = Halves(sound & (stream.step < middle), sound & (stream.step >= begins), begins)
    for side, rows in (("before", found.fitted), ("from", found.scored)):
        if not rows.any():
            step = middle if side == "before" else begins
            labels = int(stream.labelled.sum())
            lost = labels - int(sound.sum())
            raise TraceError(
                Code.REPLAY_EMPTY,
                given=f"the trace has {labels:,} labels in {stream.steps} decode steps, {lost:,} "
                "of them masked or without what the scorer reads, and of the others none is "
                f"{side} step {step}",
                allowed="labels both before and from that step on",
                fix="record more, lower --from-step or --batch, or choose another --scorer",
            )
    return found


@dataclass(frozen=True)
class Regimes:
    """Attributes:
    names: of each regime, as it is shown.
    of: [n], the regime of each row.
    """

    names: tuple[str, ...]
    of: NDArray[np.int64]


def regimes(temperature: NDArray[np.float32]) -> Regimes:
    """Each temperature, or bins of them where there are more than :data:`MOST_EXACT`.

    Args:
        temperature: [n].
    """
    kinds, of = np.unique(temperature, return_inverse=True)
    if len(kinds) <= MOST_EXACT:
        return Regimes(tuple(f"{float(kind):g}" for kind in kinds), of.astype(np.int64))
    bins = np.where(kinds <= 0.0, 0, 1 + np.searchsorted(np.array(EDGES, np.float32), kinds))
    ends = ("0", *(f"{edge:g}" for edge in EDGES))
    every = ("0", *(f"{a}-{b}" for a, b in pairwise(ends)), f">{ends[-1]}")
    there, of_kind = np.unique(bins, return_inverse=True)
    return Regimes(tuple(every[bin] for bin in there), of_kind[of].astype(np.int64))
