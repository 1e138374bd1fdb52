"""The rules of the step, one by one; each test fails without its rule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.estimator.streams import (
    Floats,
    Ours,
    Stream,
    Upstream,
    rounds,
    sampled,
    softplus,
)
from vllm_av.estimator import rules
from vllm_av.estimator.formula import Sums, newton, reach_of, share_of, sigmoid
from vllm_av.estimator.settings import EstimatorSettings

DEFAULT = EstimatorSettings()
UNDAMPED = EstimatorSettings(damping=0.0, ridge=1e-9)


def logistic(slope: float, intercept: float, positions: int, mean: float = 2.0) -> Stream:
    """A stream that the model fits, acceptance falling with the position."""
    falling = intercept - 0.1 * np.arange(positions)[:, None]
    return sampled(
        lambda rng, shape: rng.normal(mean, 2.0, shape),
        lambda f: sigmoid(slope * f + falling),
        positions,
    )


def sums_of(feature: Floats, label: Floats, slope: float, intercepts: Floats) -> Sums:
    sums = Sums(feature.shape[1])
    sums.add(feature, slope * feature + intercepts, label, np.ones(label.shape, bool))
    return sums


def loss_of(feature: Floats, label: Floats, slope: float, intercepts: Floats) -> float:
    z = slope * feature + intercepts
    return float((softplus(z) - label * z).sum())


# -- where upstream's step is sound


@pytest.mark.parametrize(
    ("given", "slope", "intercept", "positions"),
    [
        (DEFAULT, 0.7, 0.0, 1),
        (DEFAULT, 0.45, -0.5, 7),
        (DEFAULT, 0.6, 0.4, 16),
        (replace(DEFAULT, damping=5.0), 0.65, -0.3, 4),
        (replace(DEFAULT, damping=400.0, ridge=0.5), 0.65, -0.3, 4),
        (replace(DEFAULT, initial_slope=0.9, initial_intercepts=(0.4, 0.0, -0.3)), 0.5, 0.0, 3),
    ],
)
@pytest.mark.parametrize("labels", [150, 1500])
def test_sound_steps_are_upstreams(
    given: EstimatorSettings, slope: float, intercept: float, positions: int, labels: int
) -> None:
    stream = logistic(slope, intercept, positions)
    ours, theirs = Ours(given, positions), Upstream(given, positions)
    for feature, label, labelled in rounds(stream, labels, 12):
        # Labels are censored: none after the first rejected draft.
        labelled[:, 1:] = np.logical_and.accumulate(label[:, :-1] > 0, axis=1)
        ours.round(feature, label, labelled)
        theirs.round(feature, label, labelled)
    assert ours.slope == pytest.approx(theirs.slope, abs=1e-9)
    np.testing.assert_allclose(ours.intercepts, theirs.intercepts, atol=1e-9)
    assert abs(ours.slope - given.initial_slope) > 0.02
    assert ours.estimator.undone == ours.estimator.restarts == 0


# -- zero


def opposite(positions: int = 2) -> Stream:
    return sampled(lambda rng, shape: rng.normal(1.0, 1.5, shape), lambda f: sigmoid(0.4 - 0.1 * f))


def test_a_step_below_slope_zero_reaches_zero() -> None:
    stream = opposite()
    feature, label, labelled = next(rounds(stream, 2000, 1))
    ours, theirs = (kind(UNDAMPED, stream.positions) for kind in (Ours, Upstream))
    ours.round(feature, label, labelled)
    theirs.round(feature, label, labelled)
    assert theirs.slope == 0.5  # upstream drops the step
    assert ours.slope == 0.0
    assert ours.estimator.restarts == 0
    # The intercepts are the best with that slope: here the quadratic model has its minimum.
    start = -0.2 * np.ones(stream.positions)
    sums = sums_of(feature, label, 0.5, start)
    moved = ours.intercepts - start
    np.testing.assert_allclose(sums.g1 - sums.b * -0.5 - sums.c * moved, 0.0, atol=1e-5)


def test_at_slope_zero_only_the_intercepts_move() -> None:
    stream = opposite()
    ours = Ours(DEFAULT, stream.positions)
    for feature, label, labelled in rounds(stream, 2000, 6):
        ours.round(feature, label, labelled)
    assert ours.slope == 0.0
    rate = stream.base
    np.testing.assert_allclose(ours.intercepts, np.log(rate / (1 - rate)), atol=0.15)


# -- descent


def test_intercepts_follow_the_slope_however_few_their_labels() -> None:
    """Far from 0 and nearly constant, features make the intercepts undo what the slope does; a
    position of few labels would follow a tenth of the way, and its logits would leap."""
    rng = np.random.default_rng(0)
    feature = rng.normal(12.0, 0.5, (2000, 2))
    label = (rng.random(feature.shape) < sigmoid(2.0 * (feature - 12.0))).astype(float)
    labelled = np.ones(label.shape, bool)
    labelled[8:, 1] = False
    start = EstimatorSettings(initial_slope=0.5, initial_intercepts=-6.0)
    ours, theirs = Ours(start, 2), Upstream(start, 2)
    ours.round(feature, label, labelled)
    theirs.round(feature, label, labelled)
    assert ours.slope > 1.0
    assert abs(ours.slope * 12.0 + ours.intercepts[1]) < 1.0
    assert abs(theirs.slope * 12.0 + theirs.intercepts[1]) > 5.0


# -- reach


@st.composite
def samples(draw: st.DrawFn) -> tuple[Floats, Floats, float, Floats]:
    """Rows and coefficients, some of them saturated."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    positions = draw(st.integers(1, 3))
    scale = draw(st.sampled_from([0.1, 3.0, 40.0]))
    feature = np.clip(rng.normal(rng.normal(0, 5), scale, (40, positions)), -40, 40)
    label = (rng.random(feature.shape) < rng.uniform(0.01, 0.99, positions)).astype(float)
    return feature, label, draw(st.floats(0, 2)), rng.normal(0, 2, positions)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(samples(), st.sampled_from([0.5, 2.5, rules.LATER_REACH, rules.FIRST_REACH]))
def test_what_a_shortened_step_promises_holds(
    sample: tuple[Floats, Floats, float, Floats], allowed: float
) -> None:
    feature, label, slope, intercepts = sample
    sums = sums_of(feature, label, slope, intercepts)
    share = np.full(feature.shape[1], 0.9)
    step = newton(sums, slope, share, 0.95, 1e-3)
    reach = reach_of(step, feature.min(axis=0), feature.max(axis=0))
    change = np.abs(step.slope * feature + step.intercepts).max()
    assert reach == pytest.approx(change)
    taken, promised = share_of(sums, step, reach, allowed)
    after = loss_of(
        feature, label, slope + taken * step.slope, intercepts + taken * step.intercepts
    )
    before = loss_of(feature, label, slope, intercepts)
    assert 0.0 <= taken <= 1.0
    assert promised <= 0.0
    slack = 1e-9 * (1.0 + before)
    if taken < 1.0:
        assert after <= before + promised + slack
    if taken * reach <= rules.PROVEN_REACH:
        assert after <= before + slack
    if allowed < rules.LATER_REACH:
        assert taken * reach <= allowed + slack
    elif taken == 1.0:
        assert reach <= max(allowed, rules.PROVEN_REACH) + slack


def test_saturated_scores_come_back_in_one_round() -> None:
    """Features of 40 and half of the drafts accepted: the curvature is nearly 0 there, and
    the step goes on for 10,000s. The right way is 19 in the logit."""
    rng = np.random.default_rng(0)
    feature, label = np.full((2000, 1), 40.0), rng.integers(0, 2, (2000, 1)).astype(float)
    sums = sums_of(feature, label, 0.5, np.array([-0.2]))
    step = newton(sums, 0.5, np.ones(1), 1.0, 1e-3)
    reach = reach_of(step, feature.min(axis=0), feature.max(axis=0))
    assert reach > 1e4
    taken, _ = share_of(sums, step, reach, rules.FIRST_REACH)
    assert taken * reach == pytest.approx(19.1, abs=0.3)


def test_a_flat_loss_moves_nothing_far() -> None:
    sums = Sums(1)
    sums.g0[:], sums.g1[:] = -100.0, -5.0
    step = newton(sums, 50.0, np.ones(1), 1.0, 1e-3)
    reach = reach_of(step, np.array([20.0]), np.array([20.0]))
    taken, _ = share_of(sums, step, reach, rules.FIRST_REACH)
    assert taken * reach == pytest.approx(np.log(rules.FLAT), rel=1e-6)


def test_newtons_method_does_not_swing() -> None:
    """From a logit of 2.2 at a rate of 1/2 full steps only change the sign."""
    rng = np.random.default_rng(0)
    feature, label = np.full((4000, 1), 4.9), rng.integers(0, 2, (4000, 1)).astype(float)
    start = EstimatorSettings(damping=0.0)
    ours, theirs = Ours(start, 1), Upstream(start, 1)
    for _ in range(4):
        for learner in (ours, theirs):
            learner.round(feature, label, np.ones(label.shape, bool))
    assert abs(ours.slope * 4.9 + ours.intercepts[0]) < 0.1
    assert abs(theirs.slope * 4.9 + theirs.intercepts[0]) > 2.0


# -- rates


def test_the_rates_take_over_where_they_do_better() -> None:
    stream = Stream(*(np.array(v) for v in ([[40.0], [40.0]], [[0.03], [0.9]], [[1.0], [1.0]])))
    ours = Ours(DEFAULT, 2)
    ours.round(*next(rounds(stream, 1000, 1)))
    assert ours.estimator.restarts == 1
    assert ours.slope == 0.0
    np.testing.assert_allclose(sigmoid(ours.intercepts), [0.03, 0.9], atol=0.03)


def test_the_rates_wait_where_the_step_does_as_well() -> None:
    """The start is worse than the rates; one step makes it better."""
    stream = logistic(0.8, 1.5, 3, mean=0.0)
    feature, label, labelled = next(rounds(stream, 1000, 1))
    rate = label.mean(axis=0)
    own = loss_of(feature, label, 0.0, np.log(rate / (1 - rate)))
    ours = Ours(DEFAULT, 3)
    assert loss_of(feature, label, ours.slope, ours.intercepts) > own + 10
    ours.round(feature, label, labelled)
    assert ours.estimator.restarts == 0
    assert loss_of(feature, label, ours.slope, ours.intercepts) < own
