"""The tables of fits, against laws that are known and against scikit-learn used directly."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from tests.unit.replay.report.full import full
from tests.unit.replay.synthetic import synthetic
from vllm_av.replay.optimum import Fit, features_in
from vllm_av.replay.options import chosen
from vllm_av.replay.replay import replay
from vllm_av.replay.report import features as kinds
from vllm_av.replay.report.build import build
from vllm_av.replay.report.model import Report
from vllm_av.replay.report.offline import correlation, slope_error
from vllm_av.replay.report.page import render
from vllm_av.replay.scoring import halves, regimes
from vllm_av.replay.stream import lay_out
from vllm_av.replay.tables import tables
from vllm_av.replay.trace import Trace

LAW = (0.6, 0.2, -0.2)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return full(steps=1500, requests=12, slope=0.7, intercepts=LAW, temperatures=(0.0, 0.5, 1.0))


@pytest.fixture(scope="module")
def report(trace: Trace) -> Report:
    return build(trace, "pooled_estimator")


def _design(x: np.ndarray, position: np.ndarray, k: int) -> np.ndarray:
    return np.column_stack([x, *(position == i for i in range(k))])


@pytest.mark.parametrize("key", [f.key for f in kinds.FEATURES])
def test_a_feature_is_fitted_and_judged_like_scikit_learn_does(
    trace: Trace, report: Report, key: str
) -> None:
    (feature,) = (f for f in kinds.FEATURES if f.key == key)
    (row,) = (r for r in report.features if r.key == key)
    sides = halves(lay_out(trace))
    x, position, y = feature.values(trace[feature.column]), trace["position"], trace["accepted"]
    if feature.fitted:
        design = _design(x, position, 3)
        model = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-8, max_iter=1000)
        model.fit(design[sides.fitted], y[sides.fitted])
        p = model.predict_proba(design[sides.scored])[:, 1]
    else:
        p = x[sides.scored]
    assert row.figures.labels == sides.scored.sum()
    assert row.figures.auc == pytest.approx(roc_auc_score(y[sides.scored], p), abs=1e-5)
    assert row.figures.log_loss == pytest.approx(log_loss(y[sides.scored], p), abs=1e-5)
    assert row.figures.predicted == pytest.approx(p.mean(), abs=1e-4)
    assert row.lossless == (feature.column != "log_q_drawn")


def test_within_each_temperature_the_fit_is_of_that_temperature(
    trace: Trace, report: Report
) -> None:
    sides = halves(lay_out(trace))
    assert [row.name for row in report.regimes] == ["0", "0.5", "1"]
    for row, temperature in zip(report.regimes, (0.0, 0.5, 1.0), strict=True):
        here = trace["temperature"] == np.float32(temperature)
        fitted, scored = sides.fitted & here, sides.scored & here
        design = _design(trace["log_odds"], trace["position"], 3)
        model = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-8, max_iter=1000)
        model.fit(design[fitted], trace["accepted"][fitted])
        p = model.predict_proba(design[scored])[:, 1]
        y = trace["accepted"][scored]
        assert row.labels == scored.sum()
        assert row.log_loss["log_odds"] == pytest.approx(log_loss(y, p), abs=1e-5)
        assert row.auc["log_odds"] == pytest.approx(roc_auc_score(y, p), abs=1e-5)
        assert "logit_drawn" not in row.log_loss  # lossless ones only


def test_the_offline_optimum_has_the_best_feature_of_each_temperature(report: Report) -> None:
    (optimum,) = (p for p in report.predictors if p.key == "optimum")
    for row, judged in zip(report.regimes, optimum.regimes, strict=True):
        assert judged.figures.log_loss == pytest.approx(min(row.log_loss.values()), abs=1e-9)
    assert math.isfinite(optimum.survival.figures.log_loss)
    assert optimum.survival.figures.labels == report.predictors[0].survival.figures.labels


def with_head(trace: Trace, head: np.ndarray) -> Trace:
    return replace(trace, columns=trace.columns | {"head": head.astype(np.float32)})


@pytest.fixture(scope="module")
def telling() -> Trace:
    """A head that knows more than the drafter's distribution, and says it on a scale of its own."""
    made = full(steps=1500, requests=12, intercepts=LAW, temperatures=(0.0, 1.0))
    noise = np.random.default_rng(3).normal(0.0, 0.1, made.num_rows)
    knows = made["temperature"] == 1.0
    best = np.where(made["accepted"], 0.6, 0.4) + noise
    return with_head(made, np.clip(np.where(knows, best, 0.5 + noise), 0.01, 0.99))


def test_the_offline_optimum_is_that_of_a_replay_heads_included(telling: Trace) -> None:
    report = build(telling, "pooled_estimator")
    (optimum,) = (p for p in report.predictors if p.key == "optimum")
    features = features_in(telling)
    stream = lay_out(telling, ("log_odds_scaled", *features))
    said = replay(stream, chosen("pooled_estimator", (), telling))
    kinds = regimes(telling["temperature"])
    found = tables(stream, said, halves(stream), kinds, features)
    assert [part.optimum.best for part in found.regimes] == ["log_odds", "head"]
    for part, judged in zip(
        (*found.regimes, found.overall), (*optimum.regimes, optimum.conditional), strict=True
    ):
        assert judged.figures.labels == part.conditional.labels
        assert judged.figures.log_loss == pytest.approx(part.optimum.log_loss, abs=1e-9)
    for part, row in zip(found.regimes, report.regimes, strict=True):
        assert row.log_loss["logit_head"] == pytest.approx(part.optimum.features["head"], abs=1e-9)


def test_a_head_that_was_recorded_in_part_is_no_optimum(telling: Trace) -> None:
    part = telling["head"].copy()
    part[::7] = np.nan
    trace = with_head(telling, part)
    assert "head" not in features_in(trace)
    report = build(trace, "pooled_estimator")
    assert all(math.isnan(row.log_loss["logit_head"]) for row in report.regimes)
    (row,) = (r for r in report.features if r.key == "logit_head")
    assert 0 < row.figures.labels < report.features[0].figures.labels
    assert "logit(confidence head)<" in render(report)  # neither scaled nor unscaled


def test_coefficients_of_each_group_are_the_law(report: Report) -> None:
    for row in (*report.workloads, *report.temperatures["log_odds"]):
        assert row.slope == pytest.approx(0.7, abs=5 * row.error)
        assert 0 < row.error < 0.05
        assert row.intercepts == pytest.approx(LAW, abs=0.25)
    # The scaled feature is the unscaled one over the temperature: so is the slope's inverse.
    slopes = [row.slope for row in report.temperatures["log_odds_scaled"]]
    assert slopes[1] == pytest.approx(0.35, rel=0.1)


def test_group_coefficients_come_from_all_labels_of_the_group(report: Report) -> None:
    by_name = {row.name: row for row in report.facts.workloads}
    assert {row.name: row.labels for row in report.workloads} == {
        name: row.labels for name, row in by_name.items()
    }
    assert [row.rate for row in report.workloads] == [row.rate for row in by_name.values()]


def test_a_position_without_labels_has_no_intercept() -> None:
    report = build(full(steps=500, verified=2), "pooled_estimator")
    for row in (*report.workloads, *report.temperatures["log_odds"]):
        assert np.isfinite(row.intercepts[:2]).all()
        assert math.isnan(row.intercepts[2])


def test_a_shared_slope_costs_nothing_where_there_is_one_slope(report: Report) -> None:
    (row,) = (r for r in report.slopes if r.key == "log_odds")
    assert row.own.log_loss == pytest.approx(row.shared.log_loss, abs=5e-4)
    assert row.slopes == pytest.approx((0.7, 0.7, 0.7), abs=0.1)
    assert row.slope == pytest.approx(0.7, abs=0.05)


def test_a_shared_slope_costs_something_where_slopes_differ() -> None:
    plain = synthetic(steps=1500, requests=12, slope=1.0, intercepts=(0.0, 0.0, 0.0))
    # The feature of the third position is blown up: its slope is a quarter.
    x = plain["log_odds"] * np.where(plain["position"] == 2, 4.0, 1.0).astype(np.float32)
    trace = Trace(plain.info, plain.columns | {"log_odds": x}, plain.num_rows)
    (row,) = (r for r in build(trace, "pooled_estimator").slopes if r.key == "log_odds")
    assert row.slopes == pytest.approx((1.0, 1.0, 0.25), abs=0.1)
    assert row.shared.log_loss - row.own.log_loss > 0.005
    assert row.own.auc > row.shared.auc


def test_the_error_of_a_slopes_gain_is_that_of_paired_losses(trace: Trace, report: Report) -> None:
    (row,) = (r for r in report.slopes if r.key == "log_odds")
    sides = halves(lay_out(trace))
    x, position, y = trace["log_odds"], trace["position"], trace["accepted"]
    shared, own = np.empty((2, trace.num_rows))
    alone = np.column_stack([x, np.ones(len(x))])
    everywhere = trace.finite
    for said, design, here in [
        (shared, _design(x, position, 3), everywhere),
        *((own, alone, (position == k) & everywhere) for k in range(3)),
    ]:
        model = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-8, max_iter=1000)
        model.fit(design[sides.fitted & here], y[sides.fitted & here])
        said[here] = model.predict_proba(design[here])[:, 1]
    p, q = shared[sides.scored], own[sides.scored]
    gained = np.log(np.where(y[sides.scored], p / q, (1 - p) / (1 - q)))
    assert row.own.log_loss - row.shared.log_loss == pytest.approx(gained.mean(), abs=1e-6)
    assert row.error == pytest.approx(gained.std() / math.sqrt(len(gained)), rel=0.01)


def test_a_slopes_error_is_that_of_the_whole_information_matrix() -> None:
    rng = np.random.default_rng(1)
    x, position = rng.normal(1.0, 2.0, 500), rng.integers(3, size=500)
    law = Fit(0.5, np.array([0.2, -0.4, 1.0]), 500)
    p = law.predict(x, position)
    design = _design(x, position, 3).astype(float)
    information = design.T @ (design * (p * (1 - p))[:, None])
    expected = math.sqrt(np.linalg.inv(information)[0, 0])
    assert slope_error(law, x, position) == pytest.approx(expected, rel=1e-9)
    assert math.isnan(slope_error(law, np.ones(500), position))  # nothing to tell a slope by


def test_correlation() -> None:
    a, b = [1.0, 2.0, 4.0], [3.0, 1.0, 0.0]
    assert correlation(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert correlation([*a, math.nan], [*b, 9.0]) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert math.isnan(correlation(a[:2], b[:2]))
    assert math.isnan(correlation([1.0, 1.0, 1.0], b))


def test_fewer_labels_by_chance_are_a_fair_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    # Requests take turns: of every second one, half of the temperatures would be gone.
    trace = full(steps=1500, requests=12, temperatures=(0.0, 1.0))
    stream = lay_out(trace)
    whole = int((stream.labelled & stream.usable).sum())
    monkeypatch.setattr("vllm_av.replay.report.build.MOST_LABELS", whole // 2 + 1)
    report = build(trace, "pooled_estimator")
    assert report.every == 2
    fitted = [row.labels for row in report.temperatures["log_odds"]]
    assert sum(fitted) == pytest.approx(whole / report.every, rel=0.1)
    assert fitted[0] / sum(fitted) == pytest.approx(
        report.facts.temperatures[0].labels / whole, rel=0.1
    )
    # What needs no fit is judged on every label, and so is the optimum.
    labels = {p.key: p.conditional.figures.labels for p in report.predictors}
    assert len(set(labels.values())) == 1
