"""Prequential replay: each decode step is predicted, then learnt from, as in serving.

There the drafts of a step are graded in the next one: what they teach is in force from the drafts
on that are proposed after it. A trace numbers steps by grading, so the rows of step t are predicted
with all that steps before t taught.

Coefficients change at refits only: whole stretches of steps are handed over at once.

Rule: a learner sees a row's label after it has predicted the row, and no label that is not known.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vllm_av.replay.stream import Stream

Rows = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MOST_ROWS = 1 << 16
"""A stretch of more is handed over in parts, to stay within the processor's cache."""


class Learner(Protocol):
    """What can be replayed.

    Attributes:
        columns: of the trace, that it reads beside position, temperature and accepted.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...

    def steps_to_refit(self) -> int:
        """Decode steps until its predictions may change; at least 1."""

    def predict(self, rows: Rows) -> Floats:
        """[n] probabilities of acceptance, given that all before was accepted."""

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        """Take the rows of ``steps`` decode steps, no more than :meth:`steps_to_refit`.

        Args:
            rows: whole request-steps.
            labelled: [n], which of them teach; of the others ``accepted`` means nothing.
            steps: some of which may have no rows.
        """

    def state(self) -> dict[str, Any]:
        """Its coefficients, as JSON."""


def replay(stream: Stream, learner: Learner) -> Floats:
    """[n], what ``learner`` said of every row before it could know its label."""
    predictions = np.empty(stream.rows)
    for _ in stretches(stream, learner, predictions):
        pass
    return predictions


def stretches(
    stream: Stream, learner: Learner, predictions: Floats, stops: Iterator[int] | None = None
) -> Iterator[int]:
    """Replay, pausing after each stretch between which nothing changes.

    Args:
        stream: what is replayed.
        learner: is changed.
        predictions: [n], filled.
        stops: rising numbers of steps after which there must be a pause.

    Yields:
        Decode steps that were learnt from so far.
    """
    columns = {
        name: stream[name] for name in ("position", "temperature", "accepted", *learner.columns)
    }
    after = 0
    ahead = iter(stops or ())
    stop = next(ahead, stream.steps)
    while after < stream.steps:
        while stop <= after:
            stop = next(ahead, stream.steps)
        start = int(stream.offsets[after])
        # The last step that begins within the row limit, or the next one whatever its size.
        fits = int(np.searchsorted(stream.offsets, start + MOST_ROWS, "right")) - 1
        end = min(after + learner.steps_to_refit(), max(fits, after + 1), stop, stream.steps)
        part = slice(start, int(stream.offsets[end]))
        rows = {name: values[part] for name, values in columns.items()}
        predictions[part] = learner.predict(rows)
        learner.learn(rows, stream.teaches[part], end - after)
        after = end
        yield after
