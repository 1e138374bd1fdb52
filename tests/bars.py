"""The bars that the estimator is held to, measured on a trace; tests/full/test_bars.py asks.

    python -m tests.bars FILE [SCORER]

    single, mixed   log-loss from step 200 on, against the offline optimum: of the best lossless
                    single feature at each temperature (the one that is best where it is scored)
    calibration     ECE, equal mass, of the survival product
    cold start      from an optimum whose slope is off by 0.3 and whose intercepts by 1: what is
                    left of the excess log-loss, on a held-out half, after so many steps
    shift           the first intercept jumps by 1: the odds are e times, whatever the law, where
                    of the rejected first drafts (for a fall, of the accepted) only one in e is
                    kept. Real features, real labels, real order

A learner is judged by the coefficients that are in force: asked for predictions of held-out rows,
which it does not learn from.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.replay import optimum, trace
from vllm_av.replay.metrics import figures, log_loss
from vllm_av.replay.options import chosen
from vllm_av.replay.replay import Floats, Learner, replay, stretches
from vllm_av.replay.scoring import Halves, Regimes, halves, regimes
from vllm_av.replay.stream import Stream, lay_out

Build = Callable[[Sequence[str], trace.Trace], Learner]
"""From settings, as ``--set`` takes them, for a trace."""


def scorer(name: str) -> Build:
    return partial(chosen, name)


OFF = [(ds, di) for ds in (-0.3, 0.3) for di in (-1.0, 1.0)]
HELD_OUT = 40_000
"""Rows, about; a tenth of a nat is then known to 1%."""


@dataclass(frozen=True)
class Gap:
    """A log-loss beside the one that it is held to, nats."""

    labels: int
    loss: float
    optimum: float
    by: str

    @property
    def share(self) -> float:
        return self.loss / self.optimum - 1.0


def features_of(found: trace.Trace) -> list[str]:
    return list(optimum.features_in(found))


def mixed(
    found: trace.Trace,
    build: Build,
    temperatures: Sequence[float] | None = None,
    batch: int | None = None,
) -> dict[str, Gap]:
    """Gap per temperature, and ``all``, of one replay of the trace as it is, or of some requests.

    ``all`` is held to the sum of the temperatures' optima.
    """
    stream = _laid_out(found, build, temperatures, batch)
    cut, kinds = halves(stream), regimes(stream["temperature"])
    learner = build((), found)
    predictions = replay(stream, learner)
    best = best_of_each(stream, kinds, cut, features_of(found))
    gaps = {}
    for number, name in enumerate(kinds.names):
        rows = cut.scored & (kinds.of == number)
        if rows.any():
            own = log_loss(predictions[rows], stream["accepted"][rows])
            theirs, by = best[number]
            gaps[name] = Gap(int(rows.sum()), own, theirs, by)
    total = sum(gap.labels for gap in gaps.values())
    gaps["all"] = Gap(
        total,
        sum(gap.labels * gap.loss for gap in gaps.values()) / total,
        sum(gap.labels * gap.optimum for gap in gaps.values()) / total,
        "each temperature's",
    )
    return gaps


def single(found: trace.Trace, build: Build, batch: int | None = None) -> dict[str, Gap]:
    """Gap of a replay of each temperature's requests alone."""
    gaps = {}
    for kind in np.unique(found["temperature"]):
        for name, gap in mixed(found, build, [float(kind)], batch).items():
            if name != "all":
                gaps[name] = gap
    return gaps


def best_of_each(
    stream: Stream, kinds: Regimes, cut: Halves, features: Sequence[str]
) -> list[tuple[float, str]]:
    """Per regime the lowest log-loss of a single feature, and which."""
    label, position = stream["accepted"], stream["position"]
    found = []
    for number in range(len(kinds.names)):
        own = kinds.of == number
        fitted, scored = cut.fitted & own, cut.scored & own
        if not fitted.any() or not scored.any():
            found.append((np.nan, "none"))
            continue
        losses = []
        for name in features:
            x = optimum.feature(stream, name)
            law = optimum.fit(x[fitted], position[fitted], label[fitted], stream.num_positions)
            loss = log_loss(law.predict(x[scored], position[scored]), label[scored])
            losses.append((loss, name))
        found.append(min(losses))
    return found


def calibration(
    found: trace.Trace, build: Build, batch: int | None = None
) -> dict[str, dict[str, Any]]:
    """Figures of the survival product, ``all`` and of each position."""
    stream = _laid_out(found, build, None, batch)
    cut = halves(stream)
    predictions = replay(stream, build((), found))
    survival = stream.running(np.where(stream.usable, predictions, 0.0))
    rows = stream["verified"] & stream.usable & (stream.step >= cut.begins)
    positions: list[tuple[str, Any]] = [("all", rows)]
    for k in range(stream.num_positions):
        positions.append((str(k), rows & (stream["position"] == k)))
    return {
        name: figures(survival[of], stream["accepted"][of], stream.group[of]).as_dict()
        for name, of in positions
    }


# -- what is in force, asked on held-out rows


class HeldOut:
    """Rows to ask a learner about."""

    def __init__(self, stream: Stream, rows: NDArray[np.bool_], columns: Sequence[str]) -> None:
        thin = max(1, round(rows.sum() / HELD_OUT))
        # Whole request-steps, so that all positions stay as they are.
        self.rows = np.flatnonzero(rows & (stream.group % thin == 0))
        names = dict.fromkeys(("position", "temperature", "accepted", *columns))
        self.columns = {name: stream[name][self.rows] for name in names}
        self.label = self.columns["accepted"]

    def loss(self, learner: Learner) -> float:
        return log_loss(learner.predict(self.columns), self.label)


def offline(
    stream: Stream, kinds: Regimes, fitted: NDArray[np.bool_]
) -> tuple[Floats, Sequence[optimum.Fit | None]]:
    """[n], each temperature's fit of the log-odds."""
    return optimum.regimes_fit(
        stream["log_odds"], stream["position"], stream["accepted"], kinds.of,
        stream.num_positions, fitted,
    )  # fmt: skip


@dataclass(frozen=True)
class Course:
    """Held-out log-loss over the steps.

    Attributes:
        optimum: what it falls to at best.
        loss: step -> nats; 0 is the start.
    """

    optimum: float
    loss: dict[int, float]

    def left(self, step: int) -> float:
        """Share of the start's excess that is there after ``step`` steps."""
        at = max(s for s in self.loss if s <= step)
        return (self.loss[at] - self.optimum) / (self.loss[0] - self.optimum)

    @property
    def worst(self) -> float:
        """Of all that was seen, over the start's, less 1."""
        return max(self.loss.values()) / self.loss[0] - 1.0


def cold_start(
    found: trace.Trace,
    build: Build,
    batch: int,
    most: int,
    temperatures: Sequence[float] | None = None,
    places: int = 3,
) -> dict[tuple[float, float, int], Course]:
    """By what the start is off by (slope, intercepts) and where in the first half it begins.

    Off from the offline fit of the log-odds, one for all temperatures. The optimum is each
    temperature's offline fit, or what the learner comes to from its own start over the whole
    first half, if that is better.

    Args:
        most: steps.
    """
    stream = _laid_out(found, build, temperatures, batch)
    kinds = regimes(stream["temperature"])
    middle = stream.steps // 2
    sound = stream.labelled & stream.usable
    fitted, scored = sound & (stream.step < middle), sound & (stream.step >= middle)
    best, _ = offline(stream, kinds, fitted)
    law = optimum.fit(
        stream["log_odds"][fitted], stream["position"][fitted], stream["accepted"][fitted],
        stream.num_positions,
    )  # fmt: skip
    held_out = HeldOut(stream, scored, _columns(build, found))
    # The learner may know more than the log-odds: what it reaches itself counts too.
    taught = build((), found)
    replay(cut(stream, 0, middle), taught)
    least = min(log_loss(best[held_out.rows], held_out.label), held_out.loss(taught))
    courses = {}
    for place in range(places):
        first = (middle - most) * place // max(places - 1, 1)
        part = cut(stream, max(first, 0), min(max(first, 0) + most, middle))
        for ds, di in OFF:
            slope = max(law.slope + ds, 0.0)
            start = (
                f"estimator.initial_slope={slope}",
                f"estimator.initial_intercepts={(law.intercepts + di).tolist()}",
            )
            learner = build(start, found)
            courses[ds, di, place] = Course(least, dict(_course(part, learner, held_out)))
    return courses


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


def shift(
    found: trace.Trace, build: Build, batch: int, by: float, most: int = 200, seed: int = 0
) -> Course:
    """The course after the first intercept jumped ``by`` 1 or -1.

    The first 30% of the trace teach the old law; of the next 45% the steps after the jump are
    taken, and the rest is held out. ``loss[0]`` is of the old law's offline fit, not of the
    learner: what it may not be worse than. ``optimum`` is fitted on the 45%, where the law is new.
    """
    old = _laid_out(found, build, None, batch)
    bounds = [int(old.group[-1] * share) for share in (0.3, 0.75)]
    kept = _resampled(old, by, bounds[0], np.random.default_rng(seed))
    stream = _regrouped(old, kept, batch)
    part = np.searchsorted(bounds, old.group[kept], "right")  # 0, 1, 2 of each row
    kinds = regimes(stream["temperature"])
    sound = stream.labelled & stream.usable
    before, _ = offline(stream, kinds, sound & (part == 0))
    after, _ = offline(stream, kinds, sound & (part == 1))
    held_out = HeldOut(stream, sound & (part == 2), _columns(build, found))
    jump = int(stream.step[np.searchsorted(part, 1)])
    learner = build((), found)
    replay(cut(stream, 0, jump), learner)
    end = int(stream.step[np.searchsorted(part, 2)])
    course = dict(_course(cut(stream, jump, min(jump + most, end)), learner, held_out))
    course[0] = log_loss(before[held_out.rows], held_out.label)
    return Course(log_loss(after[held_out.rows], held_out.label), course)


def _resampled(
    stream: Stream, by: float, first: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """[n], what is kept so that from request-step ``first`` on the first odds are e^by times."""
    begins = stream["position"] == 0
    drop = begins & (stream["accepted"] != (by > 0)) & (stream.group >= first)
    drop[begins] &= rng.random(int(begins.sum())) >= np.exp(-abs(by))
    gone = np.zeros(int(stream.group[-1]) + 1, bool)
    gone[stream.group[drop]] = True
    return ~gone[stream.group]


def _regrouped(stream: Stream, kept: NDArray[np.bool_], batch: int) -> Stream:
    columns = {name: values[kept] for name, values in stream.columns.items()}
    group = np.cumsum(columns["position"] == 0) - 1
    step = group // batch
    return replace(
        stream,
        columns=columns,
        offsets=np.searchsorted(step, np.arange(int(step[-1]) + 2)),
        step=step,
        group=group,
        labelled=stream.labelled[kept],
        teaches=stream.teaches[kept],
        usable=stream.usable[kept],
    )


def _columns(build: Build, found: trace.Trace) -> tuple[str, ...]:
    return tuple(build((), found).columns)


def _laid_out(
    found: trace.Trace, build: Build, temperatures: Sequence[float] | None, batch: int | None
) -> Stream:
    columns = (*_columns(build, found), *features_of(found))
    return lay_out(found, columns, batch=batch, temperatures=temperatures)


def main() -> None:
    path, *rest = sys.argv[1:]
    build = scorer(rest[0] if rest else "online_estimator")
    found = trace.read(path)
    print("bar 1: single temperatures (<= 1%), then mixed (all <= 1.5%)")
    for gaps in (single(found, build), mixed(found, build)):
        for name, gap in gaps.items():
            print(
                f"  T {name:>5}  {gap.labels:>7} labels  {gap.loss:.4f}  optimum {gap.optimum:.4f}"
                f"  {100 * gap.share:+.2f}%  {gap.by}"
            )
    print("bar 2: ECE, equal mass, of the survival product (<= .02)")
    for name, answer in calibration(found, build).items():
        print(
            f"  position {name:>3}  {answer['labels']:>7} labels  ECE {answer['ece_mass']:.4f}"
            f"  chance {answer['chance_mass']:.4f}"
        )
    print("bar 3: excess left at batch 64 after 10 (<= .5), 50 (<= .1); at 1 after 200 (<= .5)")
    for (ds, di, place), course in cold_start(found, build, 64, 60).items():
        print(
            f"  64: slope {ds:+} intercepts {di:+} place {place}: {course.left(10):.3f}"
            f" {course.left(50):.3f} worst {100 * course.worst:+.2f}%  ({course.loss[0]:.3f} to"
            f" {course.optimum:.3f})"
        )
    for (ds, di, place), course in cold_start(found, build, 1, 2000).items():
        print(
            f"   1: slope {ds:+} intercepts {di:+} place {place}: {course.left(200):.3f}"
            f" after 2,000 {course.left(2000):.3f} worst {100 * course.worst:+.2f}%"
        )
    print("bar 4: after the first intercept's jump")
    for by in (1.0, -1.0):
        course = shift(found, build, 64, by)
        last = course.loss[max(course.loss)]
        print(
            f"  64: {by:+}: old fit {course.loss[0]:.4f} now {last:.4f} optimum"
            f" {course.optimum:.4f} {100 * (last / course.optimum - 1):+.2f}% (<= 3%)"
        )
        course = shift(found, build, 2, by, most=4000)
        print(f"   2: {by:+}: worst against the old fit {100 * course.worst:+.2f}% (<= 5%)")


if __name__ == "__main__":
    main()
