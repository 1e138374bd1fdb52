"""A learner's log-loss over the steps, by the coefficients that are in force.

Rule: it is asked about held-out rows, which it never learns from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.replay.metrics import log_loss
from vllm_av.replay.replay import Learner, stretches
from vllm_av.replay.stream import Stream

HELD_OUT = 40_000
"""Rows, about; a tenth of a nat is then known to 1%."""


class HeldOut:
    """Rows to ask a learner about.

    Attributes:
        rows: [n], which of the stream's they are: whole request-steps, so that all positions stay
            as they are.
        mask: [rows of the stream], the same.
    """

    def __init__(self, stream: Stream, rows: NDArray[np.bool_], columns: Sequence[str]) -> None:
        thin = max(1, round(rows.sum() / HELD_OUT))
        self.mask = rows & (stream.group % thin == 0)
        self.rows = np.flatnonzero(self.mask)
        names = dict.fromkeys(("position", "temperature", "accepted", *columns))
        self.columns = {name: stream[name][self.rows] for name in names}
        self.label = self.columns["accepted"]

    def loss(self, learner: Learner) -> float:
        return log_loss(learner.predict(self.columns), self.label)


@dataclass(frozen=True)
class Course:
    """Held-out log-loss over the steps.

    Attributes:
        optimum: what it falls to at best.
        held_to: what it may not be worse than.
        loss: step -> nats; 0 is the learner's own at the start.
    """

    optimum: float
    held_to: float
    loss: dict[int, float]

    def after(self, step: int) -> float:
        """What is in force when so many steps have been learnt from."""
        return self.loss[max(s for s in self.loss if s <= step)]

    def left(self, step: int) -> float:
        """Share of the start's excess that is there after ``step`` steps."""
        return (self.after(step) - self.optimum) / (self.loss[0] - self.optimum)

    @property
    def worst(self) -> float:
        """The highest of all, step 0 included, over ``held_to``, less 1."""
        return max(self.loss.values()) / self.held_to - 1.0


def course(part: Stream, learner: Learner, held_out: HeldOut) -> dict[int, float]:
    """Step -> held-out log-loss, at the start and whenever the coefficients change."""
    return dict(_course(part, learner, held_out))


def _course(part: Stream, learner: Learner, held_out: HeldOut) -> Iterator[tuple[int, float]]:
    yield 0, held_out.loss(learner)
    state = learner.state()
    for step in stretches(part, learner, np.empty(part.rows)):
        now = learner.state()
        if now != state:
            state = now
            yield step, held_out.loss(learner)


def cut(stream: Stream, first: int, last: int) -> Stream:
    """Some of its steps."""
    part = slice(int(stream.offsets[first]), int(stream.offsets[last]))
    return replace(
        stream,
        columns={name: values[part] for name, values in stream.columns.items()},
        offsets=stream.offsets[first : last + 1] - stream.offsets[first],
        step=stream.step[part] - first,
        group=stream.group[part] - (stream.group[part][0] if part.stop > part.start else 0),
        labelled=stream.labelled[part],
        teaches=stream.teaches[part],
        usable=stream.usable[part],
    )


def regrouped(stream: Stream, rows: NDArray[Any], batch: int) -> Stream:
    """Some of its rows, in an order of one's own, ``batch`` request-steps to a step.

    Args:
        rows: which: a mask, or numbers in their new order; whole request-steps.
    """
    columns = {name: values[rows] for name, values in stream.columns.items()}
    group = np.cumsum(columns["position"] == 0) - 1
    step = group // batch
    return replace(
        stream,
        columns=columns,
        offsets=np.searchsorted(step, np.arange(int(step[-1]) + 2)),
        step=step,
        group=group,
        labelled=stream.labelled[rows],
        teaches=stream.teaches[rows],
        usable=stream.usable[rows],
    )
