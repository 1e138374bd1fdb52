"""A trace laid out for a replay: which rows, in which decode steps.

Rows are the trace's, in its order. A *request-step* is the drafts of one request in one decode
step: adjacent rows, positions from 0 up. A decode step holds any number of them; one that graded
nothing counts too, since the rounds of serving are counted in steps. So do those from step 1, the
first of a server, to the first of the trace. But no gap counts for more than :data:`LONGEST_GAP`:
the recorder was then switched off, or another one numbers its steps otherwise.

Rule: nothing is learnt and nothing predicted here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.errors import Code, TraceError
from vllm_av.replay.trace import Trace

LONGEST_GAP = 100
"""Decode steps."""

ALWAYS = ("position", "temperature", "accepted", "verified")


@dataclass(frozen=True)
class Stream:
    """Rows and steps.

    Attributes:
        num_positions: K.
        columns: name -> [n].
        offsets: [steps + 1], the first row of each decode step.
        step: [n], from 0, the decode step of each row.
        group: [n], from 0, the request-step of each row.
        labelled: [n], the label is known.
        teaches: [n], it is, and the row may teach: no mask, and every column is a number.
        usable: [n], the row and those before it in its request-step are such that they may: the
            figures are of these.
    """

    num_positions: int
    columns: Mapping[str, NDArray[Any]]
    offsets: NDArray[np.int64]
    step: NDArray[np.int64]
    group: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    teaches: NDArray[np.bool_]
    usable: NDArray[np.bool_]

    @property
    def steps(self) -> int:
        return len(self.offsets) - 1

    @property
    def rows(self) -> int:
        return len(self.step)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def running(self, values: NDArray[Any]) -> NDArray[Any]:
        """[n], the product of ``values`` over a row and those before it in its request-step."""
        found = values.copy()
        # Position by position, so that the memory is that of the rows whatever K is.
        order = np.argsort(self["position"], kind="stable")
        count = np.bincount(self["position"])
        for rows in np.split(order, np.cumsum(count)[:-1])[1:]:
            found[rows] *= found[rows - 1]
        return found


def lay_out(
    trace: Trace,
    columns: Collection[str] = (),
    *,
    batch: int | None = None,
    temperatures: Collection[float] | None = None,
) -> Stream:
    """The rows of ``trace``, in its own steps or in others.

    Args:
        trace: read.
        columns: that are wanted beside :data:`ALWAYS`.
        batch: request-steps to a decode step, in the order of the trace; None: its own steps.
        temperatures: of the requests that are taken; None: all.

    Raises:
        TraceError: ``AV-TRACE-COLUMN`` where the trace lacks a column, ``AV-REPLAY-EMPTY`` where
            it has no request of these temperatures.
    """
    wanted = dict.fromkeys((*ALWAYS, *columns))
    taken = _of(trace, temperatures)
    found = {name: _take(trace[name], taken) for name in wanted}
    labelled, sound = _take(trace.labelled, taken), _take(trace.may_teach, taken).copy()
    for name in columns:
        sound &= np.isfinite(found[name])
    first = found["position"] == 0
    group = np.cumsum(first) - 1
    step = _numbered(_take(trace["step"], taken)) if batch is None else group // batch
    steps = int(step[-1]) + 1
    stream = Stream(
        num_positions=trace.info.num_speculative_tokens,
        columns=found,
        offsets=np.searchsorted(step, np.arange(steps + 1)),
        step=step,
        group=group,
        labelled=labelled,
        teaches=labelled & sound,
        usable=sound,
    )
    # What a row's survival product is made of must be sound too.
    return replace(stream, usable=stream.running(sound.astype(np.int8)).astype(bool))


def _of(trace: Trace, temperatures: Collection[float] | None) -> NDArray[np.bool_] | None:
    if temperatures is None:
        return None
    first = trace["position"] == 0
    there = trace["temperature"][first]
    of_group = np.isin(there, np.asarray(list(temperatures), there.dtype))
    taken: NDArray[np.bool_] = of_group[np.cumsum(first) - 1]
    if not taken.any():
        kinds = np.unique(there)
        shown = ", ".join(f"{kind:g}" for kind in kinds[:12]) + (", ..." if len(kinds) > 12 else "")
        raise TraceError(
            Code.REPLAY_EMPTY,
            given=f"no request of {trace.source} has temperature "
            f"{' or '.join(f'{wish:g}' for wish in temperatures)}",
            allowed=f"here: {shown}",
            fix="choose among these, or leave --temperature out",
        )
    return taken


def _take(values: NDArray[Any], taken: NDArray[np.bool_] | None) -> NDArray[Any]:
    return values if taken is None else values[taken]


def _numbered(step: NDArray[np.int64]) -> NDArray[np.int64]:
    """From 0, where serving's first step is 1, and no gap longer than it may be."""
    gaps = np.diff(step, prepend=min(int(step[0]), 1))
    return np.cumsum(np.minimum(gaps, LONGEST_GAP))
