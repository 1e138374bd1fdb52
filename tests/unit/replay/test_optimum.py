"""The offline fit against scikit-learn's own, against the law, and on what breaks solvers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from tests.unit.replay.synthetic import synthetic
from vllm_av.replay import metrics
from vllm_av.replay.optimum import PENALTY, feature, features_in, fit

K = 3
SMALL = st.lists(
    st.tuples(
        st.one_of(st.floats(-40.0, 40.0, width=32), st.sampled_from([-40.0, 0.0, 40.0])),
        st.integers(0, K - 1),
        st.booleans(),
    ),
    min_size=2,
    max_size=40,
)


def drawn(rows: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    feature = rng.normal(2.0, 3.0, rows).astype(np.float32)
    position = rng.integers(0, K, rows)
    p = 1.0 / (1.0 + np.exp(-(0.7 * feature + np.array([-1.0, 0.0, 0.5])[position])))
    return feature, position, rng.random(rows) < p


def test_it_finds_the_law() -> None:
    found = fit(*drawn(), K)
    assert found.slope == pytest.approx(0.7, abs=0.02)
    assert found.intercepts == pytest.approx([-1.0, 0.0, 0.5], abs=0.12)
    assert found.labels == 20_000


def test_another_solver_without_a_penalty_finds_the_same() -> None:
    feature, position, label = drawn(3000)
    x = np.column_stack([feature, *(position == k for k in range(K))]).astype(float)
    theirs = LogisticRegression(C=np.inf, solver="lbfgs", fit_intercept=False, tol=1e-9)
    slope, *intercepts = theirs.fit(x, label).coef_[0]
    found = fit(feature, position, label, K)
    assert found.slope == pytest.approx(slope, abs=1e-4)
    assert found.intercepts == pytest.approx(intercepts, abs=1e-4)


@settings(deadline=None, max_examples=60)
@given(SMALL)
def test_a_general_minimiser_finds_nothing_better(rows: list[tuple[float, int, bool]]) -> None:
    """Labels however few and however alike, with the penalty that the fit has."""
    feature, position, label = (np.array(each) for each in zip(*rows, strict=True))
    if label.all() or not label.any():
        return
    found = fit(feature, position, label, K)
    seen = np.unique(position)
    centre, scale = feature.mean(), feature.std()
    scale = scale if scale > 1e-6 * (1.0 + abs(centre)) else np.inf

    def objective(x: np.ndarray) -> float:
        z = x[0] * (feature - centre) / scale + x[1:][position]
        loss = np.logaddexp(0.0, np.where(label, -z, z)).sum()
        return float(loss + PENALTY / 2.0 * (x[0] ** 2 + (x[1:][seen] ** 2).sum()))

    standardised = 0.0 if np.isinf(scale) else found.slope * scale
    here = np.array([standardised, *(found.intercepts + found.slope * centre)])
    theirs = minimize(objective, np.zeros(K + 1), method="BFGS", options={"gtol": 1e-7})
    assert objective(here) <= theirs.fun + 1e-4


@pytest.mark.parametrize("value", [0.0, 40.0, -17.3])
def test_a_constant_feature_leaves_the_rates(value: float) -> None:
    _, position, label = drawn(6000)
    feature = np.full(6000, value, np.float32)
    found = fit(feature, position, label, K)
    rates = [label[position == k].mean() for k in range(K)]
    assert found.predict(feature[:K], np.arange(K)) == pytest.approx(rates, abs=1e-4)


def test_separable_labels_end_in_sure_and_finite_coefficients() -> None:
    feature, position, _ = drawn(2000)
    label = feature > 1.5
    found = fit(feature, position, label, K)
    assert np.isfinite(found.slope)
    assert np.isfinite(found.intercepts).all()
    assert metrics.log_loss(found.predict(feature, position), label) < 1e-2


@pytest.mark.parametrize("outcome", [True, False])
def test_a_position_of_one_outcome_is_predicted_so(outcome: bool) -> None:
    feature, position, label = drawn(2000)
    label = np.where(position == 1, outcome, label)
    found = fit(feature, position, label, K)
    said = found.predict(feature, position)[position == 1]
    assert (said > 0.99 if outcome else said < 0.01).all()
    # What the others teach is not bent by it.
    assert found.slope == pytest.approx(0.7, abs=0.1)


@pytest.mark.parametrize("outcome", [True, False])
def test_labels_that_are_all_alike(outcome: bool) -> None:
    feature, position, _ = drawn(9)
    found = fit(feature, position, np.full(9, outcome), K)
    said = found.predict(feature, position)
    assert said == pytest.approx([(9.5 if outcome else 0.5) / 10.0] * 9)


def test_a_position_that_was_never_labelled_gets_the_mean_intercept() -> None:
    feature, position, label = drawn(3000)
    rows = position != 1
    found = fit(feature[rows], position[rows], label[rows], K)
    assert found.intercepts[1] == pytest.approx((found.intercepts[0] + found.intercepts[2]) / 2)


def test_one_label() -> None:
    found = fit(np.zeros(1, np.float32), np.zeros(1, int), np.array([True]), K)
    assert found.predict(np.zeros(3), np.arange(3)) == pytest.approx([0.75] * 3)


def test_the_head_is_a_feature_by_its_log_odds() -> None:
    head = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 0.5], np.float32)
    trace = synthetic(steps=1, requests=2, head=head)
    assert features_in(trace) == ("log_odds", "log_odds_scaled", "head")
    found = feature(trace.columns, "head")
    assert found == pytest.approx([-40.0, -np.log(3), 0.0, np.log(3), 40.0, 0.0], abs=1e-6)
    assert feature(trace.columns, "log_odds") is trace["log_odds"]


def test_a_head_that_some_rows_lack_is_none() -> None:
    head = np.array([np.nan, 0.25, 0.5, 0.75, 1.0, 0.5], np.float32)
    trace = synthetic(steps=1, requests=2, head=head)
    assert features_in(trace) == ("log_odds", "log_odds_scaled")
    # Of a row that is no distribution nothing is asked.
    trace = synthetic(steps=1, requests=2, head=head)
    trace["log_odds"][0] = np.nan
    assert "head" in features_in(trace)
