"""``vllm-av trace replay``: read a trace, replay one scorer on it, work out every figure.

Rule: nothing is printed here.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vllm_av.errors import Code, TraceError
from vllm_av.replay.optimum import features_in
from vllm_av.replay.options import chosen
from vllm_av.replay.replay import replay
from vllm_av.replay.scoring import halves, regimes
from vllm_av.replay.stream import Stream, lay_out
from vllm_av.replay.tables import Tables, tables
from vllm_av.replay.trace import Trace, read

VERSION = 1
"""Of the JSON; a key is added under the same version, and changes its meaning under none."""

MOST = 10**9
"""Of requests in a step, and of steps."""


@dataclass(frozen=True)
class Wish:
    """What is asked.

    Attributes:
        scorer: one of :data:`learners.LEARNERS`.
        settings: ``estimator.damping=20``.
        batch: request-steps to a decode step; None: the trace's own steps.
        temperatures: of the requests that are taken; none: all.
        from_step: decode step from which rows may be scored; None: 200, where the trace goes on.
    """

    scorer: str
    settings: tuple[str, ...] = ()
    batch: int | None = None
    temperatures: tuple[float, ...] = ()
    from_step: int | None = None

    def check(self) -> None:
        """Refuse what no trace could answer.

        Raises:
            TraceError: ``AV-REPLAY-OPTION``.
        """
        if self.batch is not None and not 1 <= self.batch <= MOST:
            raise _out_of_range("--batch", self.batch, f"a number of requests, 1 to {MOST}")
        if self.from_step is not None and not 0 <= self.from_step <= MOST:
            raise _out_of_range("--from-step", self.from_step, f"a decode step, 0 to {MOST}")
        for temperature in self.temperatures:
            if not 0.0 <= temperature < float("inf"):
                raise _out_of_range("--temperature", temperature, "a temperature, from 0 up")


def _out_of_range(option: str, value: float, allowed: str) -> TraceError:
    return TraceError(
        Code.REPLAY_OPTION, given=f"{option} is {value}", allowed=allowed, fix="correct it"
    )


@dataclass(frozen=True)
class Result:
    """Everything that a replay says.

    Attributes:
        counts: of rows and steps.
        state: the scorer's coefficients at the end.
        seconds: reading, replaying, and working out the figures.
    """

    wish: Wish
    trace: Trace
    counts: dict[str, int]
    begins: int
    state: dict[str, Any]
    tables: Tables
    seconds: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``; docs/trace-replay.md says what each key means."""
        return {
            "version": VERSION,
            "scorer": self.wish.scorer,
            "settings": list(self.wish.settings),
            "batch": self.wish.batch,
            "temperatures": list(self.wish.temperatures),
            "trace": {"source": self.trace.source, **self.trace.info.model_dump()},
            "counts": self.counts,
            "scored_from_step": self.begins,
            **self.tables.as_dict(),
            "state": self.state,
            "seconds": self.seconds,
        }


def run(path: Path, wish: Wish) -> Result:
    """Replay.

    Raises:
        TraceError: the trace or the wish is not as it must be.
        ConfigError: a setting is not.
    """
    wish.check()
    began = time.perf_counter()
    trace = read(path)
    learner = chosen(wish.scorer, wish.settings, trace)
    features = features_in(trace)
    stream = lay_out(
        trace,
        tuple(dict.fromkeys((*learner.columns, *features))),
        batch=wish.batch,
        temperatures=wish.temperatures or None,
    )
    cut = halves(stream, wish.from_step)
    laid_out = time.perf_counter()
    predictions = replay(stream, learner)
    replayed = time.perf_counter()
    found = tables(stream, predictions, cut, regimes(stream["temperature"]), features)
    return Result(
        wish,
        trace,
        _counts(stream, trace),
        cut.begins,
        learner.state(),
        found,
        {
            "read": laid_out - began,
            "replay": replayed - laid_out,
            "figures": time.perf_counter() - replayed,
        },
    )


def _counts(stream: Stream, trace: Trace) -> dict[str, int]:
    """``left_out``: rows of no figure, which are masked or no distribution, or follow such a row in
    their request-step. The two reasons are counted over the whole trace."""
    masked = trace.has("masked") and (trace["masked"] >= 0)
    return {
        "rows": stream.rows,
        "request_steps": int(stream.group[-1]) + 1 if stream.rows else 0,
        "steps": stream.steps,
        "labels": int(stream.labelled.sum()),
        "teaching": int(stream.teaches.sum()),
        "masked": int(np.sum(masked)),
        "not_a_distribution": int((~trace.finite).sum()),
        "left_out": int((~stream.usable).sum()),
    }
