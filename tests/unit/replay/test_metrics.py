"""Each figure against scikit-learn's, against its definition row by row, and against chance."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as theirs
from sklearn.calibration import calibration_curve

from vllm_av.replay import metrics
from vllm_av.replay.metrics import BINS, figures

# Few different values make ties; 0 and 1 are predictions too.
PREDICTIONS = st.one_of(
    st.sampled_from([0.0, 0.25, 0.5, 1.0 / 15.0, 14.0 / 15.0, 1.0]), st.floats(0.0, 1.0)
)
ROWS = st.lists(st.tuples(PREDICTIONS, st.booleans()), min_size=1, max_size=80)


def split(rows: list[tuple[float, bool]]) -> tuple[metrics.Floats, metrics.Bools]:
    return np.array([p for p, _ in rows]), np.array([y for _, y in rows])


@settings(deadline=None)
@given(ROWS)
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[float, bool]]) -> None:
    p, y = split(rows)
    pairs = [(float(a > r) + 0.5 * (a == r)) for a in p[y] for r in p[~y]]
    expected = math.nan if not pairs else sum(pairs) / len(pairs)
    assert metrics.auc(p, y) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@settings(deadline=None)
@given(ROWS)
def test_scikit_learn_agrees(rows: list[tuple[float, bool]]) -> None:
    p, y = split(rows)
    found = figures(p, y)
    assert found.log_loss == pytest.approx(theirs.log_loss(y, p, labels=[False, True]), rel=1e-12)
    assert found.brier == pytest.approx(theirs.brier_score_loss(y, p), abs=1e-12)
    if len(set(y.tolist())) == 2:
        assert found.auc == pytest.approx(theirs.roc_auc_score(y, p), abs=1e-12)
    assert found.labels == len(rows)
    assert found.predicted == pytest.approx(p.mean(), abs=1e-12)
    assert found.observed == pytest.approx(y.mean(), abs=1e-12)


def test_a_wrong_prediction_of_certainty_costs_36_nats() -> None:
    assert metrics.log_loss(np.array([0.0]), np.array([True])) == pytest.approx(36.04, abs=0.01)
    assert metrics.log_loss(np.array([0.0]), np.array([False])) == pytest.approx(0.0, abs=1e-15)


@settings(deadline=None)
@given(ROWS)
def test_ece_of_equal_width_by_its_definition(rows: list[tuple[float, bool]]) -> None:
    error = 0.0
    for low in range(BINS):
        inside = [(p, y) for p, y in rows if min(int(p * BINS), BINS - 1) == low]
        error += abs(sum(p - y for p, y in inside))
    assert metrics.ece_width(*split(rows)) == pytest.approx(error / len(rows), abs=1e-12)


def test_ece_of_equal_width_against_scikit_learns_curve() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(4000)
    y = rng.random(4000) < p**2
    observed, predicted = calibration_curve(y, p, n_bins=BINS)
    share = np.bincount((p * BINS).astype(int), minlength=BINS) / len(p)
    expected = float((share * np.abs(observed - predicted)).sum())
    assert metrics.ece_width(p, y) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(ROWS)
def test_ece_of_equal_mass_by_its_definition(rows: list[tuple[float, bool]]) -> None:
    """Rows of equal prediction stand for the mean of their labels."""
    mean = {p: np.mean([y for q, y in rows if q == p]) for p, _ in rows}
    ordered, n = sorted(p for p, _ in rows), len(rows)
    runs = [[p for j, p in enumerate(ordered) if BINS * j // n == b] for b in range(BINS)]
    assert max(map(len, runs)) - min(map(len, runs)) <= 1
    error = sum(abs(sum(p - mean[p] for p in run)) for run in runs)
    assert metrics.ece_mass(*split(rows)) == pytest.approx(error / len(rows), abs=1e-12)


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_no_figure_depends_on_the_order_of_the_rows(rows: list[tuple[float, bool]], rng) -> None:  # type: ignore[no-untyped-def]
    before = figures(*split(rows)).as_dict()
    rng.shuffle(rows)
    after = figures(*split(rows)).as_dict()
    for name, value in before.items():
        assert after[name] == (None if value is None else pytest.approx(value, abs=1e-12)), name


def test_no_rows_have_no_figures() -> None:
    found = figures(np.zeros(0), np.zeros(0, bool)).as_dict()
    assert found.pop("labels") == 0
    assert set(found.values()) == {None}
    assert math.isnan(metrics.ece_mass(np.zeros(0), np.zeros(0, bool)))
    assert math.isnan(metrics.ece_width(np.zeros(0), np.zeros(0, bool)))
    assert math.isnan(metrics.auc(np.zeros(0), np.zeros(0, bool)))


@pytest.mark.parametrize(("labels", "chance"), [(1_000, 0.049), (20_000, 0.0109)])
def test_chance_gives_a_perfect_predictor_as_much_as_is_known(labels: int, chance: float) -> None:
    """From a simulation of p = 1/2 in 15 bins."""
    p = np.full(labels, 0.5)
    found = figures(p + np.linspace(-1e-9, 1e-9, labels), np.arange(labels) % 2 == 0)
    assert found.chance_mass == pytest.approx(chance, rel=0.02)


def nested(rng: np.random.Generator, steps: int, k: int) -> tuple[metrics.Floats, metrics.Bools]:
    """Survival products of perfect predictions, and outcomes drawn from them."""
    conditional = rng.beta(12.0, 1.0, (steps, k))
    accepted = np.cumprod(rng.random((steps, k)) < conditional, axis=1).astype(bool)
    return np.cumprod(conditional, axis=1).ravel(), accepted.ravel()


@pytest.mark.parametrize("kind", ["width", "mass"])
def test_chance_is_what_drawing_the_labels_again_and_again_gives(kind: str) -> None:
    steps, k = 400, 4
    group = np.repeat(np.arange(steps), k)
    found, expected, alone = [], [], []
    for seed in range(300):
        p, y = nested(np.random.default_rng(seed), steps, k)
        answer = figures(p, y, group).as_dict()
        found.append(answer[f"ece_{kind}"])
        expected.append(answer[f"chance_{kind}"])
        alone.append(figures(p, y).as_dict()[f"chance_{kind}"])
    assert np.mean(expected) == pytest.approx(np.mean(found), rel=0.03)
    # As if the rows of one request-step were independent.
    assert np.mean(alone) < 0.9 * np.mean(found)
