"""The estimator's bars on every trace (see :mod:`tests.traces`); :mod:`tests.bars` says how.

Where one run depends on chance (a start at batch 1), the mean over several starting places is held
to the bar; the figures of all are printed where it fails.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests import bars
from tests.rivals import OURS, best_of_others, lines, side_by_side
from tests.traces import parameters
from vllm_av.replay.trace import Trace, read

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(3600),
    pytest.mark.parametrize("path", parameters()),
]
BUILD = bars.scorer(OURS)
ENOUGH = 20_000
"""Labels of a position from which on its calibration is held to the bar."""


@cache
def trace(path: Path) -> Trace:
    return read(path)


def test_each_temperature_is_near_its_best_single_feature(path: Path) -> None:
    gaps = bars.single(trace(path), BUILD)
    assert {name: gap for name, gap in gaps.items() if not gap.share <= 0.01} == {}


def test_mixed_traffic_is_near_the_optimum_of_each_temperature(path: Path) -> None:
    gap = bars.mixed(trace(path), BUILD)["all"]
    assert gap.share <= 0.015, gap


def test_survival_is_calibrated(path: Path) -> None:
    found = bars.calibration(trace(path), BUILD)
    held = {name: of for name, of in found.items() if name == "all" or of["labels"] >= ENOUGH}
    wrong = {
        name: (of["ece_mass"], of["labels"])
        for name, of in held.items()
        if not of["ece_mass"] <= 0.02
    }
    assert wrong == {}


def test_a_wrong_start_is_left_within_steps_at_batch_64(path: Path) -> None:
    courses = bars.cold_start(trace(path), BUILD, batch=64, most=60)
    left = {of: (course.left(10), course.left(50)) for of, course in courses.items()}
    wrong = {of: each for of, each in left.items() if not (each[0] <= 0.5 and each[1] <= 0.1)}
    assert wrong == {}


def test_a_wrong_start_is_left_at_batch_1_and_never_made_worse(path: Path) -> None:
    courses = bars.cold_start(trace(path), BUILD, batch=1, most=2000, places=6)
    for off in bars.OFF:
        left = [course.left(200) for (*of, _), course in courses.items() if tuple(of) == off]
        assert np.mean(left) <= 0.5, (off, left)
    worse = {of: course.worst for of, course in courses.items() if course.worst > 0.0}
    assert worse == {}


@pytest.mark.parametrize("by", [1.0, -1.0])
def test_a_jump_is_followed(path: Path, by: float) -> None:
    """200 steps at batch 64; a short trace has fewer after the jump, which is the harder bar."""
    course = bars.shift(trace(path), BUILD, batch=64, by=by)
    last = course.loss[max(course.loss)]
    assert last <= 1.03 * course.optimum, course
    slow = bars.shift(trace(path), BUILD, batch=2, by=by, most=4000)
    assert slow.worst <= 0.05, slow


def test_ours_is_the_best_online_one(path: Path) -> None:
    """README.md names the traces where it is not; there are none."""
    rivals, optimum = side_by_side(trace(path))
    _, loss = best_of_others(rivals)
    assert rivals[OURS].losses["all"] <= loss, "\n".join(lines(rivals, optimum))
