"""The estimator for mixed traffic: its model, its refit, and which labels count.

What the refit minimises is written down here a second time, label by label, as a plain sum.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.estimator.mixed import Drafts, Mixed, drawn, falling
from tests.unit.estimator.streams import Floats, softplus
from vllm_av.estimator.formula import sigmoid
from vllm_av.estimator.settings import MIXED, EstimatorSettings
from vllm_av.estimator.tempered import rules
from vllm_av.estimator.tempered.formula import earlier, features, margins, places, weights
from vllm_av.estimator.tempered.reference import TemperedReference
from vllm_av.estimator.tempered.schedule import Schedule

STEPS, SLOTS = 3, 6
KNOTS = np.array(rules.KNOTS)
EACH = 5  # coefficients of a knot
AT_KNOTS = 25
SAYS = (0.8, 0.8, 0.2, 0.8, 0.2)

# -- features


def test_the_features_are_of_the_top_token_at_temperature_1() -> None:
    made = TemperedReference(MIXED, 20, 1)
    logits = np.random.default_rng(0).normal(0, 2, (20, 50))
    made.predict(
        logits, np.arange(20), np.array(0), np.linspace(0, 2, 20), out := np.zeros((20, 1))
    )
    q = np.sort(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), axis=1)
    log_odds, margin, place = made.features[:, 0].T
    np.testing.assert_allclose(log_odds, np.log(q[:, -1] / (1 - q[:, -1])))
    np.testing.assert_allclose(margin, np.log(q[:, -1] / q[:, -2]))
    np.testing.assert_allclose(place, np.interp(np.linspace(0, 2, 20), KNOTS, range(5)))
    # Start values: slope .5 of both halves of the log-odds, intercept -.2.
    np.testing.assert_allclose(out[:, 0], sigmoid(0.5 * log_odds - 0.2))
    found = features(log_odds, margin, np.zeros(20))
    halves = [np.log(q[:, -1]), -np.log(1 - q[:, -1])]
    np.testing.assert_allclose(
        found, np.stack([*halves, np.log1p(margin), np.zeros(20), np.ones(20)], axis=1)
    )


def test_what_was_before_is_the_mean_log_odds_of_the_earlier_drafts() -> None:
    """Each within 8, as nothing where it was no distribution; whatever lies in the slot's later
    places from the step before."""
    found = earlier(np.array([[1.0, 3.0, -20.0, 7.0, 5.0], [math.nan, 2.0, 40.0, math.inf, 0.0]]))
    expected = [[0.0, 1.0, 2.0, (4.0 - 8.0) / 3, (4.0 - 8.0 + 7.0) / 4], [0, 0, 1, 10 / 3, 2.5]]
    np.testing.assert_allclose(found, expected)
    made = TemperedReference(MIXED, 4, 3)
    made.coefficients[3:AT_KNOTS:EACH] = 1.0
    logits = np.random.default_rng(0).normal(0, 2, (2, 3, 1, 20))
    out = np.zeros((1, 3))
    for block in logits:
        for k in range(3):
            made.predict(block[k], np.array([2]), np.array(k), np.ones(4), out)
    log_odds = made.features[2, :, 0]
    scores = made.scores[2] - 0.5 * log_odds + 0.2
    np.testing.assert_allclose(scores, [0.0, log_odds[0], log_odds[:2].mean()], atol=1e-12)


def test_features_are_clamped() -> None:
    made = TemperedReference(replace(MIXED, log_odds_clamp=9.0), 3, 1)
    logits = np.array([[0.0, -50.0, -60.0], [3.0, 3.0, 0.0], [0.0, -math.inf, -math.inf]])
    made.predict(logits, np.arange(3), np.array(0), np.ones(3), np.zeros((3, 1)))
    assert made.features[:, 0, 0] == pytest.approx([9.0, -math.log1p(math.exp(-3)), 9.0])
    assert made.features[:, 0, 1].tolist() == [9.0, 0.0, 9.0]


def test_a_vocabulary_of_one_token_has_no_second_best() -> None:
    assert margins(np.zeros((2, 1))).tolist() == [math.inf, math.inf]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_distribution_predicts_1_and_teaches_nothing(bad: float) -> None:
    made = TemperedReference(replace(MIXED, refit_interval=10**6), SLOTS, STEPS)
    logits = np.random.default_rng(0).normal(0, 2, (3, 20))
    logits[1] = bad if bad == -math.inf else np.where(np.arange(20) == 4, bad, logits[1])
    out = np.full((3, STEPS), -1.0)
    made.predict(logits, np.array([4, 0, 2]), np.array(1), np.ones(SLOTS), out)
    assert (out[:, 1] == 1.0).tolist() == [False, True, False]
    assert (out[:, [0, 2]] == -1.0).all()
    made._schedule = Schedule(10**6, 10**6)
    made.observe(np.array([4, 0, 2]), np.array([4, 4, 4]), np.zeros(3, int))
    assert made._round[-STEPS:].tolist() == [3, 2, 3]
    assert np.isfinite(made._curvature).all()


def test_temperatures_beyond_the_knots_count_as_the_last() -> None:
    assert places(np.array([0.0, 0.15, 0.3, 1.4, 7.0])).tolist() == [0.0, 0.5, 1.0, 4.0, 4.0]


def test_coefficients_are_linear_between_knots() -> None:
    made = TemperedReference(MIXED, 1, 2)
    made.coefficients = np.random.default_rng(0).normal(size=27)
    by_knot = made.coefficients[:AT_KNOTS].reshape(5, EACH)
    intercepts = made.coefficients[AT_KNOTS:]
    temperature = np.array([0.0, 0.1, 0.45, 0.9, 1.3, 2.0])
    log_odds, margin, before = np.linspace(-5, 5, 6), np.linspace(0, 3, 6), np.arange(6) / 2
    score = made.score(log_odds, margin, before, temperature, np.array([0, 1, 0, 1, 0, 1]))
    for i, t in enumerate(temperature):
        a, b, c, d, level = (np.interp(t, KNOTS, by_knot[:, f]) for f in range(EACH))
        q = 1 / (1 + math.exp(-log_odds[i]))
        expected = a * math.log(q) - b * math.log(1 - q) + c * math.log(1 + margin[i])
        expected += d * before[i] + level
        assert score[i] == pytest.approx(expected + intercepts[i % 2])


# -- one row per request, or K


def test_one_row_per_request_or_k() -> None:
    """The rows of a step, and the rows of a whole block, come to the same."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (2 * STEPS, 20))
    slots, temperature = np.array([3, 1]), rng.uniform(0, 2, SLOTS)
    one, whole = (TemperedReference(MIXED, SLOTS, STEPS) for _ in range(2))
    outs = np.zeros((2, 2, STEPS))
    for step in range(STEPS):
        one.predict(logits[step::STEPS], slots, np.array(step), temperature, outs[0])
    steps = np.tile(np.arange(STEPS), 2)
    whole.predict(logits, np.repeat(slots, STEPS), steps, temperature, outs[1])
    assert (outs[0] == outs[1]).all()
    assert (one.features == whole.features).all()
    assert (one.features[[0, 2, 4, 5]] == 0.0).all()


# -- which labels count


def slow(**numbers: float) -> TemperedReference:
    """Never refitted."""
    made = TemperedReference(replace(MIXED, refit_interval=10**6, **numbers), SLOTS, STEPS)  # type: ignore[arg-type]
    made._schedule = Schedule(10**6, 10**6)
    return made


@pytest.mark.parametrize(
    ("sampled", "rejected", "labels", "residuals"),
    [
        (4, 0, [1, 1, 1], [0.5, 0.5, 0.5]),  # all three accepted, and the bonus token
        (2, 2, [1, 1, 0], [0.5, -0.5, 0]),  # the second rejected: nothing is known of the third
        (2, 1, [1, 1, 0], [0.5, -0.5, 0]),  # the third was trimmed
        (2, 0, [1, 0, 0], [0.5, 0, 0]),  # only one was verified
        (1, 3, [1, 0, 0], [-0.5, 0, 0]),
        (1, 0, [0, 0, 0], [0, 0, 0]),  # no draft was verified
        (0, 0, [0, 0, 0], [0, 0, 0]),  # a chunk of a prompt
        (0, 2, [1, 0, 0], [-0.5, 0, 0]),
    ],
)
def test_accepted_positions_and_the_first_rejected_one_have_labels(
    sampled: int, rejected: int, labels: list[float], residuals: list[float]
) -> None:
    made = slow()
    made.observe(np.array([2]), np.array([sampled]), np.array([rejected]))
    assert made._round[-STEPS:].tolist() == labels
    assert made._gradient[-STEPS:].tolist() == residuals
    # Temperature 0 is the first knot's alone.
    assert made._round[:AT_KNOTS].tolist() == [sum(labels)] * 5 + [0.0] * 20
    np.testing.assert_allclose(np.diag(made._curvature)[-STEPS:], np.array(labels) / 4)


def test_padding_and_the_mask_teach_nothing_and_the_mask_is_counted() -> None:
    made = slow()
    four = np.full(4, 4)
    teaches = np.array([True, False, True, True])
    made.observe(np.array([0, 1, -1, 5]), four, four * 0, teaches)
    assert made._round[-STEPS:].tolist() == [2, 2, 2]
    assert made.masked == 3
    made.observe(np.array([0, 1, -1, 5]), four * 0 + 1, four * 0 + 2, ~teaches)
    assert made._round[-STEPS:].tolist() == [3, 2, 2]
    assert made.masked == 5


def test_each_row_is_its_slots() -> None:
    made = slow()
    made.features[4] = [[2.0, 3.0, 1.0], [1.0, 1.5, 2.5], [-1.0, 0.5, 4.0]]
    made.observe(np.array([4]), np.array([4]), np.array([0]))
    # r = 1/2 times share times feature, at each knot.
    margins = [0.0, math.log(4), math.log(2.5) / 2, math.log(2.5) / 2, math.log(1.5)]
    assert made._gradient[2:AT_KNOTS:EACH] == pytest.approx(np.array(margins) / 2)
    assert made._gradient[3:AT_KNOTS:EACH].tolist() == [0.0, 0.0, 0.5, 0.5, 0.75]
    assert made._round[:AT_KNOTS:EACH].tolist() == [0.0, 1.0, 0.5, 0.5, 1.0]


# -- when it is refitted


def test_rounds_grow_up_to_the_interval() -> None:
    schedule = Schedule(20)
    due = [step for step in range(1, 120) if schedule.count()]
    assert due == [1, 2, 4, 8, 16, 32, 52, 72, 92, 112]


def test_an_interval_of_1_is_every_step() -> None:
    schedule = Schedule(1)
    assert [schedule.count() for _ in range(5)] == [True] * 5


def test_steps_may_pass_together() -> None:
    one, many = Schedule(10), Schedule(10)
    due = [step for step in range(1, 60) if one.count()]
    passed: list[int] = []
    while many.steps < 50:
        assert many.count(many.left)
        passed.append(many.steps)
    assert passed == [step for step in due if step <= passed[-1]]


def test_a_schedule_goes_on_where_another_was() -> None:
    first, second = Schedule(20), Schedule(20)
    for _ in range(37):
        first.count()
    second.resume(first.steps, first.left)
    assert [second.count() for _ in range(40)] == [first.count() for _ in range(40)]
    shorter = Schedule(3)
    shorter.resume(first.steps, 15)
    assert shorter.left == 3


@pytest.mark.parametrize("per_step", [1, 7, 63])
def test_there_is_no_refit_before_there_are_enough_labels(per_step: int) -> None:
    mixed = Mixed()
    drafts = drawn(np.random.default_rng(0), 800, falling)
    start, seen = mixed.estimator.coefficients.copy(), 0
    for step in drafts.steps(per_step):
        mixed.step(step)
        seen += len(step)
        if mixed.estimator.refits:
            break
        assert (mixed.estimator.coefficients == start).all()
    # The last round before it was as long as all that came before.
    few = rules.FEWEST_LABELS
    assert few <= seen <= few + max(few, per_step)
    assert mixed.estimator.labels[-3:].sum() == seen
    assert (mixed.estimator.coefficients != start).any()


# -- the refit


class Sum:
    """The loss as a sum over all labels so far, each a quadratic of its own."""

    def __init__(self, settings: EstimatorSettings, positions: int) -> None:
        self.settings, self.positions = settings, positions
        self.size = AT_KNOTS + positions
        self.now = np.array(
            ([settings.initial_slope] * 2 + [0.0] * 3) * 5 + [*settings.intercepts(positions)]
        )
        self.start = self.now.copy()
        self.labels = np.zeros(self.size)
        # Of each label: its features as far as they count by now, w, and its gradient.
        self.x, self.w, self.pull = np.zeros((0, self.size)), np.zeros(0), np.zeros((0, self.size))
        self.new = 0

    def add(self, drafts: Drafts) -> None:
        x = np.zeros((len(drafts), self.size))
        for i in range(len(drafts)):
            q = 1 / (1 + math.exp(-drafts.log_odds[i]))
            place = np.interp(drafts.temperature[i], KNOTS, range(5))
            for j in range(5):
                hat = max(0.0, 1.0 - abs(place - j))
                halves = [math.log(q), -math.log(1 - q)]
                rest = [math.log(1 + drafts.margin[i]), drafts.before[i], 1.0]
                x[i, EACH * j : EACH * (j + 1)] = hat * np.array(halves + rest)
            x[i, AT_KNOTS + drafts.position[i]] = 1.0
        z = x @ self.now
        p = sigmoid(z)
        residual = drafts.label - p
        weight = np.where(
            np.abs(residual) > 0.5, np.tanh(np.abs(z) / 2) / (2 * np.abs(z)), p * (1 - p)
        )
        self.x, self.w = np.concatenate([self.x, x]), np.concatenate([self.w, weight])
        self.pull = np.concatenate([self.pull, residual[:, None] * x])
        self.new += len(drafts)

    def close(self) -> Floats:
        """Count the round's labels; those of each coefficient in the round."""
        round_ = self.x[len(self.x) - self.new :]
        at_knots = round_[:, EACH - 1 : AT_KNOTS : EACH].sum(axis=0)
        shares = np.concatenate([np.repeat(at_knots, EACH), round_[:, AT_KNOTS:].sum(axis=0)])
        self.labels += shares
        self.new = 0
        return shares

    def energy(self, to: Floats) -> float:
        """What the refit is to minimise."""
        step, moved = to - self.now, to - self.start
        along = self.x @ step
        labels = -(self.pull @ step).sum() + 0.5 * (self.w * along**2).sum()
        damping = max(self.settings.damping, 1.0)
        left = np.maximum(np.exp(-self.labels / rules.START_MEMORY), rules.START_REMAINS)
        prior = SAYS[4] * (left * moved**2)[AT_KNOTS:].sum()
        for f, says in enumerate(SAYS):
            own, fading = moved[f:AT_KNOTS:EACH], left[f:AT_KNOTS:EACH]
            prior += says * (np.sqrt(fading) * own).mean() ** 2
            for j in range(4):
                prior += says * (fading[j] + fading[j + 1]) / 2 * (own[j + 1] - own[j]) ** 2
        return float(labels + 0.5 * damping * prior)

    def move(self, to: Floats, shares: Floats) -> None:
        """Take coefficients, and let every label age."""
        self.pull = self.pull - (self.w * (self.x @ (to - self.now)))[:, None] * self.x
        keeps = np.exp(-shares / (2 * self.settings.memory))
        self.x, self.pull, self.now = self.x * keeps, self.pull * keeps, to.copy()


@pytest.mark.parametrize(
    "numbers",
    [
        MIXED,
        replace(MIXED, damping=0.0, memory=10.0, refit_interval=1),
        replace(MIXED, damping=1000.0, memory=150.0, initial_intercepts=(0.5, -1.0, 2.0)),
        replace(MIXED, initial_slope=3.0, memory=1e9, refit_interval=3),
    ],
    ids=["default", "forgetful", "steady", "steep start"],
)
def test_a_refit_is_the_minimum_of_a_sum_over_all_labels(numbers: EstimatorSettings) -> None:
    rng = np.random.default_rng(0)
    mixed, plain = Mixed(numbers), Sum(numbers, 3)
    refits = 0
    for step in drawn(rng, 2400, falling, temperatures=(0.0, 0.2, 0.5, 1.0, 1.2, 2.0)).steps(30):
        plain.add(step)
        mixed.step(step)
        if mixed.estimator.refits == refits:
            continue
        refits = mixed.estimator.refits
        shares = plain.close()
        found = mixed.estimator.coefficients
        energy = plain.energy(found)
        for axis in range(plain.size):
            ahead, behind = (
                plain.energy(found + s * 0.05 * np.eye(plain.size)[axis]) for s in (1, -1)
            )
            # The minimum along each axis is at 0; the energy is a quadratic and smooth.
            assert (ahead - behind) / (ahead + behind - 2 * energy) == pytest.approx(0, abs=1e-5)
            assert min(ahead, behind) > energy
        np.testing.assert_allclose(mixed.estimator.labels, plain.labels, atol=1e-9)
        plain.move(found, shares)
    assert refits >= 5


@pytest.mark.parametrize("score", [-30.0, -4.0, -0.3, 0.3, 4.0, 30.0])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_a_surprising_labels_quadratic_bounds_its_loss(score: float, label: float) -> None:
    p = float(sigmoid(np.array([score]))[0])
    weight = float(weights(np.array([score]), np.array([label - p]))[0])
    if abs(label - p) <= 0.5:
        assert weight == pytest.approx(p * (1 - p))
        return
    to = np.linspace(-60, 60, 2401)
    loss = softplus(to) - label * to
    here = float(softplus(np.array([score]))[0]) - label * score
    bound = here - (label - p) * (to - score) + 0.5 * weight * (to - score) ** 2
    assert (bound >= loss - 1e-9).all()
    assert weight >= p * (1 - p)


def test_start_values_fade_with_labels() -> None:
    """A coefficient that labels speak about leaves its start value as they become more; one that
    they say nothing of stays."""
    rng = np.random.default_rng(0)
    law = drawn(rng, 20_000, lambda d: 0.5 * d.log_odds + 1.8, temperatures=(1.0,), positions=1)
    loss = []
    held = replace(MIXED, damping=3000.0)
    for count in (640, 2560, 20_000):
        mixed = Mixed(held, 2).learn(law[:count])
        loss.append(mixed.loss(law) - Mixed(MIXED, 1).learn(law).loss(law))
        assert mixed.estimator.coefficients[-1] == held.initial_intercepts
    assert loss[0] > 0.05
    assert loss[1] < 0.5 * loss[0]
    assert loss[2] < 0.02 * loss[0]


def test_what_is_not_finite_is_forgotten() -> None:
    """No label can bring this about; a fault of the machine might."""
    mixed = Mixed(positions=1)
    drafts = drawn(np.random.default_rng(0), 6400, falling, positions=1)
    mixed.learn(drafts[:640])
    mixed.estimator._gradient[2] = math.nan
    mixed.learn(drafts[640:])
    assert mixed.loss(drafts) < 1.02 * Mixed(positions=1).learn(drafts).loss(drafts)
