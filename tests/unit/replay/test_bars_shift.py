"""The bars' resampling makes the very shift that it says, under a law that is known; and the other
ways in which they cut a trace keep whole request-steps."""

import numpy as np
import pytest

from tests.bars.courses import Course, cut, regrouped
from tests.bars.shift import resampled
from tests.bars.start import one_by_one
from tests.unit.replay.synthetic import synthetic
from vllm_av.replay.optimum import Fit, fit
from vllm_av.replay.stream import Stream, lay_out

SLOPE, LAW = 0.8, (0.3, 0.0, -0.3)
FIRST = 16_000
"""The request-step of the jump."""


@pytest.fixture(scope="module")
def stream() -> Stream:
    trace = synthetic(steps=6000, requests=8, slope=SLOPE, intercepts=LAW)
    return lay_out(trace, ("request", "log_odds"), batch=8)


def law_of(stream: Stream, rows: np.ndarray) -> Fit:
    rows = rows & stream.labelled
    return fit(
        stream["log_odds"][rows], stream["position"][rows], stream["accepted"][rows],
        stream.num_positions,
    )  # fmt: skip


@pytest.mark.parametrize("by", [1.0, -1.0])
def test_the_first_intercept_jumps_by_one_and_nothing_else(stream: Stream, by: float) -> None:
    kept = resampled(stream, by, FIRST, np.random.default_rng(1))
    before, after = kept & (stream.group < FIRST), kept & (stream.group >= FIRST)
    # One standard error is about .02 of an intercept, .008 of the slope.
    old, new = law_of(stream, before), law_of(stream, after)
    assert old.slope == pytest.approx(SLOPE, abs=0.03)
    assert old.intercepts == pytest.approx(LAW, abs=0.1)
    assert new.slope == pytest.approx(SLOPE, abs=0.03)
    assert new.intercepts == pytest.approx((LAW[0] + by, *LAW[1:]), abs=0.1)


def test_before_the_jump_everything_is_kept(stream: Stream) -> None:
    kept = resampled(stream, 1.0, FIRST, np.random.default_rng(1))
    assert kept[stream.group < FIRST].all()
    # Whole request-steps go.
    gone = np.unique(stream.group[~kept])
    assert 0 < len(gone) == (~kept).sum() / stream.num_positions


def test_requests_come_one_after_another(stream: Stream) -> None:
    found = one_by_one(cut(stream, 10, 30))
    assert found.rows == 20 * 8 * 3
    assert found.steps == 20 * 8
    assert (np.diff(found["request"]) >= 0).all()
    assert found["position"].tolist() == [0, 1, 2] * 160
    # Each request's rows stay in their order, and each with its own label.
    taken = cut(stream, 10, 30)
    for request in range(8):
        there, here = taken["request"] == request, found["request"] == request
        assert (taken["log_odds"][there] == found["log_odds"][here]).all()
        assert (taken.labelled[there] == found.labelled[here]).all()


def test_regrouping_fills_steps(stream: Stream) -> None:
    found = regrouped(cut(stream, 0, 4), np.repeat([True, False], 48), 3)
    assert found.steps == 6
    assert np.diff(found.offsets).tolist() == [9, 9, 9, 9, 9, 3]


def test_the_learners_own_loss_at_the_jump_counts_as_the_worst() -> None:
    found = Course(optimum=0.4, held_to=0.5, loss={0: 0.6, 20: 0.45, 40: 0.44})
    assert found.worst == pytest.approx(0.2)
    assert found.after(39) == 0.45
    assert found.left(20) == pytest.approx(0.25)
