"""Cold start: from an optimum whose slope is off by 0.3 and whose intercepts by 1, what is left of
the excess log-loss, on a held-out half, after so many steps."""

from collections.abc import Sequence

import numpy as np

from tests.bars.courses import Course, HeldOut, course, cut, regrouped
from tests.bars.measures import Build, columns, features_of, laid_out, optimum_of
from vllm_av.replay import optimum, trace
from vllm_av.replay.replay import replay
from vllm_av.replay.scoring import Halves
from vllm_av.replay.stream import Stream

OFF = [(ds, di) for ds in (-0.3, 0.3) for di in (-1.0, 1.0)]


def cold_start(
    found: trace.Trace,
    build: Build,
    batch: int,
    most: int,
    temperatures: Sequence[float] | None = None,
    places: int = 3,
    serial: bool = False,
) -> dict[tuple[float, float, int], Course]:
    """By what the start is off by (slope, intercepts) and where in the first half it begins.

    Off from the offline fit of the log-odds, one for all temperatures. The optimum is that of the
    best single feature at each temperature, or what the learner comes to from its own start over
    the whole first half, if that is better.

    Args:
        most: steps.
        serial: one request after another, as a server with room for one sees them; in the trace
            they take turns, whatever the batch.
    """
    stream = laid_out(found, build, temperatures, batch)
    middle = stream.steps // 2
    sound = stream.labelled & stream.usable
    fitted, scored = sound & (stream.step < middle), sound & (stream.step >= middle)
    law = optimum.fit(
        stream["log_odds"][fitted], stream["position"][fitted], stream["accepted"][fitted],
        stream.num_positions,
    )  # fmt: skip
    held_out = HeldOut(stream, scored, columns(build, found))
    # The learner may know more than one feature: what it reaches itself counts too.
    taught = build((), found)
    replay(cut(stream, 0, middle), taught)
    least = min(
        optimum_of(stream, Halves(fitted, held_out.mask, middle), features_of(found)),
        held_out.loss(taught),
    )
    lesson = cut(stream, 0, middle)
    if serial:
        lesson = one_by_one(lesson, batch)
    courses = {}
    for place in range(places):
        first = max((lesson.steps - most) * place // max(places - 1, 1), 0)
        part = cut(lesson, first, min(first + most, lesson.steps))
        for ds, di in OFF:
            slope = law.slope + ds
            assert slope >= 0.0, f"a slope of {law.slope:.3f} cannot be wrong by {ds}"
            start = (
                f"estimator.initial_slope={slope}",
                f"estimator.initial_intercepts={(law.intercepts + di).tolist()}",
            )
            losses = course(part, build(start, found), held_out)
            courses[ds, di, place] = Course(least, losses[0], losses)
    return courses


def one_by_one(stream: Stream, batch: int = 1) -> Stream:
    """Its requests one after another, each in its own order."""
    return regrouped(stream, np.argsort(stream["request"], kind="stable"), batch)
