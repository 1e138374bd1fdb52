"""The estimator's calls: features, which labels count, and what never enters."""

import math

import numpy as np
import pytest

from tests.unit.estimator.streams import Floats
from vllm_av.estimator.formula import entropy_of, features, rates_of, sigmoid
from vllm_av.estimator.reference import ReferenceEstimator
from vllm_av.estimator.settings import EstimatorSettings

STEPS, SLOTS = 3, 6


def log_odds(row: Floats, temperature: float) -> float:
    q = np.exp(row / temperature - (row / temperature).max())
    q = q / q.sum()
    return math.log(q.max() / (1 - q.max()))


# -- features


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_the_feature_is_the_log_odds_of_the_top_token(temperature: float) -> None:
    rows = np.random.default_rng(0).normal(0, 2, (20, 50))
    found = features(rows, np.full(20, temperature))
    np.testing.assert_allclose(found, [log_odds(row, temperature) for row in rows], rtol=1e-9)


def test_temperature_zero_counts_as_one() -> None:
    rows = np.random.default_rng(0).normal(0, 2, (2, 50))
    assert features(rows, np.array([0.0, 1.0])) == pytest.approx(features(rows, np.ones(2)))


def test_features_are_clamped_and_keep_their_resolution() -> None:
    rows = np.array([[0.0, -30.0], [0.0, -100.0], [0.0, -math.inf], [5.0, 5.0]])
    assert features(rows, np.ones(4)) == pytest.approx([30.0, 40.0, 40.0, 0.0])
    many = np.zeros((1, 2**20))
    assert features(many, np.ones(1), clamp=5.0) == pytest.approx([-5.0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_distribution_has_no_feature(bad: float) -> None:
    row = np.full((1, 8), bad) if bad == -math.inf else np.array([[0.0, bad, 1.0]])
    assert math.isnan(features(row, np.ones(1))[0])


# -- which labels count


def estimator(**numbers: object) -> ReferenceEstimator:
    """All features 1, scores 0: a label adds 1/4 to a, b and c, and +-1/2 to the gradients."""
    made = ReferenceEstimator(EstimatorSettings(**numbers), SLOTS, STEPS)  # type: ignore[arg-type]
    made.features[:] = 1.0
    return made


def observed(made: ReferenceEstimator) -> tuple[list[float], list[float]]:
    """Labels and accepted drafts per position."""
    return made._labels.tolist(), made._accepted.tolist()


@pytest.mark.parametrize(
    ("sampled", "rejected", "labels", "accepted"),
    [
        (4, 0, [1, 1, 1], [1, 1, 1]),  # all three accepted, and the bonus token
        (2, 2, [1, 1, 0], [1, 0, 0]),  # the second rejected: nothing is known of the third
        (2, 1, [1, 1, 0], [1, 0, 0]),  # the third was trimmed
        (2, 0, [1, 0, 0], [1, 0, 0]),  # only one was verified
        (1, 3, [1, 0, 0], [0, 0, 0]),
        (1, 0, [0, 0, 0], [0, 0, 0]),  # no draft was verified
        (0, 0, [0, 0, 0], [0, 0, 0]),  # a chunk of a prompt
        (0, 2, [1, 0, 0], [0, 0, 0]),
    ],
)
def test_accepted_positions_and_the_first_rejected_one_have_labels(
    sampled: int, rejected: int, labels: list[float], accepted: list[float]
) -> None:
    made = estimator()
    made.observe(np.array([2]), np.array([sampled]), np.array([rejected]))
    assert observed(made) == (labels, accepted)
    np.testing.assert_allclose(made._now.c, np.array(labels) / 4)
    np.testing.assert_allclose(made._now.g1, np.array(accepted) - np.array(labels) / 2)


def test_padding_and_the_mask_teach_nothing() -> None:
    made = estimator()
    four = np.full(4, 4)
    teaches = np.array([True, False, True, True])
    made.observe(np.array([0, 1, -1, 5]), four, four * 0, teaches)
    assert observed(made) == ([2, 2, 2], [2, 2, 2])


def test_what_the_mask_keeps_out_is_counted_by_position() -> None:
    made = estimator(refit_interval=2)
    sampled, rejected = np.array([1, 3, 4, 2]), np.array([2, 0, 0, 2])
    teaches = np.array([False, False, True, False])
    for _ in range(3):  # over the end of a round
        made.observe(np.array([0, 1, 2, -1]), sampled, rejected, teaches)
    made.observe(np.array([0, 1, 2, -1]), sampled, rejected)
    assert made.masked.tolist() == [6, 3, 0]


def test_each_row_is_its_slots() -> None:
    made = estimator()
    made.features[4] = [2.0, 3.0, 5.0]
    made.observe(np.array([4]), np.array([4]), np.array([0]))
    np.testing.assert_allclose(made._now.b, np.array([2.0, 3.0, 5.0]) / 4)
    assert made._lowest.tolist() == made._highest.tolist() == [2.0, 3.0, 5.0]


def test_a_round_ends_after_its_steps() -> None:
    made = estimator(refit_interval=3)
    for step in range(1, 8):
        made.observe(np.arange(4), np.array([4, 3, 2, 1]), np.array([0, 1, 2, 3]))
        assert made.refits == step // 3
    assert made.slope != 0.5


# -- what never enters


def test_nothing_that_is_not_finite_enters() -> None:
    clean, dirty = estimator(refit_interval=1), estimator(refit_interval=1)
    dirty.features[1, 0] = math.nan
    dirty.features[2, 1] = math.inf
    dirty.scores[3, 2] = -math.inf
    rows = np.arange(4)
    four = np.full(4, 4)
    dirty.observe(rows, four, 0 * four)
    feature, score = clean.features[rows], clean.scores[rows]
    kept = np.ones((4, STEPS), bool)
    kept[1, 0] = kept[2, 1] = kept[3, 2] = False
    clean.learn(feature, score, np.ones((4, STEPS)), kept)
    clean.refit()
    assert dirty.slope == clean.slope
    assert dirty.intercepts.tolist() == clean.intercepts.tolist()
    assert math.isfinite(dirty.slope)
    assert dirty.slope != 0.5


def test_a_row_of_nan_logits_predicts_1_and_teaches_nothing() -> None:
    """1 is what vLLM's buffer holds before any estimate: nothing speaks against the draft."""
    made = ReferenceEstimator(EstimatorSettings(), SLOTS, STEPS)
    logits = np.random.default_rng(0).normal(0, 2, (3, 20))
    logits[1, 4] = math.nan
    out = np.full((3, STEPS), -1.0)
    made.predict(logits, np.array([4, 0, 2]), np.array(1), np.ones(SLOTS), out)
    assert (out[:, 1] == 1.0).tolist() == [False, True, False]
    assert np.isnan(made.scores[:, 1]).nonzero()[0].tolist() == [0]
    assert (out[:, [0, 2]] == -1.0).all()
    made.observe(np.array([4, 0, 2]), np.array([4, 4, 4]), np.array([0, 0, 0]))
    assert made._labels.tolist() == [3, 2, 3]


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_a_step_that_is_not_finite_is_not_taken(ridge: float) -> None:
    made = ReferenceEstimator(EstimatorSettings(ridge=ridge, damping=0.0), 1, 1)
    feature, score = np.full((5, 1), 40.0), np.full((5, 1), 1e6)
    with np.errstate(all="ignore"):
        made.learn(feature, score, np.zeros((5, 1)), np.ones((5, 1), bool))
        made._now.g0[:] = math.inf
        made.refit()
    assert math.isfinite(made.slope)
    assert np.isfinite(made.intercepts).all()


# -- predictions


def test_one_row_per_request_or_k() -> None:
    """The rows of a step, and the rows of a whole block, come to the same."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (2 * STEPS, 20))
    slots, temperature = np.array([3, 1]), rng.uniform(0.3, 2, SLOTS)
    numbers = EstimatorSettings(initial_intercepts=(0.1, -0.5, 2.0))
    one, whole = (ReferenceEstimator(numbers, SLOTS, STEPS) for _ in range(2))
    outs = np.zeros((2, 2, STEPS))
    for step in range(STEPS):
        one.predict(logits[step::STEPS], slots, np.array(step), temperature, outs[0])
    steps = np.tile(np.arange(STEPS), 2)
    whole.predict(logits, np.repeat(slots, STEPS), steps, temperature, outs[1])
    assert (outs[0] == outs[1]).all()
    assert (one.features == whole.features).all()
    expected = sigmoid(
        0.5 * features(logits[:STEPS], np.full(STEPS, temperature[3])) + np.array([0.1, -0.5, 2.0])
    )
    np.testing.assert_allclose(outs[0][0], expected)
    assert (one.features[[0, 2, 4, 5]] == 0.0).all()


# -- rates


def test_rates_are_never_0_or_1() -> None:
    rate = rates_of(np.array([0.0, 9.0, 0.0]), np.array([9.0, 9.0, 0.0]))
    assert rate == pytest.approx([0.05, 0.95, 0.5])
    assert entropy_of(np.array([0.5])) == pytest.approx(math.log(2))


def test_labels_nearly_all_alike_move_the_intercept_less() -> None:
    """500 labels of rate .01 hold 28 nats: a fourth of the step that upstream's damping allows."""
    moved = []
    for rate in (0.01, 0.5):
        made = ReferenceEstimator(
            EstimatorSettings(initial_slope=0.0, initial_intercepts=math.log(rate / (1 - rate))),
            1,
            1,
        )
        label = (np.arange(500) < 500 * (rate + 0.004)).astype(float)[:, None]
        made.learn(np.zeros((500, 1)), np.zeros((500, 1)) + made.intercepts, label, label >= 0)
        sums = made._now
        full = float(sums.g1[0] / sums.c[0])
        start = made.intercepts[0]
        made.refit()
        moved.append((made.intercepts[0] - start) / full)
    assert moved[0] == pytest.approx(500 / (500 + 850), abs=0.1)
    assert moved[1] == pytest.approx(500 / 550, abs=1e-3)
