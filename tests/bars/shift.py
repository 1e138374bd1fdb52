"""Workload shift: the first intercept jumps by 1.

The odds are then e times, whatever the law, where of the rejected first drafts (for a fall, of the
accepted) only one in e is kept. Real features, real labels, real order.
"""

import numpy as np
from numpy.typing import NDArray

from tests.bars.courses import Course, HeldOut, course, cut, regrouped
from tests.bars.measures import Build, columns, features_of, laid_out, optimum_of
from vllm_av.replay import trace
from vllm_av.replay.replay import replay
from vllm_av.replay.scoring import Halves
from vllm_av.replay.stream import Stream

PARTS = (0.3, 0.75)
"""Shares of the request-steps: the old law until the first; what is held out from the second on."""


def shift(
    found: trace.Trace, build: Build, batch: int, by: float, most: int = 200, seed: int = 0
) -> Course:
    """The course after the first intercept jumped ``by`` 1 or -1.

    The first 30% of the trace teach the old law; of the next 45% the steps after the jump are
    taken, and the rest is held out. What the learner may not be worse than is the old law's offline
    optimum; the new one is fitted on the 45%.
    """
    old = laid_out(found, build, None, batch)
    kept = resampled(old, by, int(old.group[-1] * PARTS[0]), np.random.default_rng(seed))
    stream = regrouped(old, kept, batch)
    bounds = [int(old.group[-1] * share) for share in PARTS]
    part = np.searchsorted(bounds, old.group[kept], "right")  # 0, 1, 2 of each row
    sound = stream.labelled & stream.usable
    held_out = HeldOut(stream, sound & (part == 2), columns(build, found))
    jump, end = (int(stream.step[np.searchsorted(part, number)]) for number in (1, 2))
    before, after = (
        optimum_of(stream, Halves(sound & (part == own), held_out.mask, end), features_of(found))
        for own in (0, 1)
    )
    learner = build((), found)
    replay(cut(stream, 0, jump), learner)
    lesson = cut(stream, jump, min(jump + most, end))
    return Course(after, before, course(lesson, learner, held_out))


def resampled(stream: Stream, by: float, first: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """[n], what is kept so that from request-step ``first`` on the first odds are e^by times."""
    begins = stream["position"] == 0
    drop = begins & (stream["accepted"] != (by > 0)) & (stream.group >= first)
    drop[begins] &= rng.random(int(begins.sum())) >= np.exp(-abs(by))
    gone = np.zeros(int(stream.group[-1]) + 1, bool)
    gone[stream.group[drop]] = True
    return ~gone[stream.group]
