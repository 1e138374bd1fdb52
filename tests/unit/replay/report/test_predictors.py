"""What a predictor is judged by, worked out again by hand."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.unit.replay.report.full import full
from tests.unit.replay.synthetic import synthetic
from vllm_av.replay.metrics import Bools, Floats, figures, losses
from vllm_av.replay.replay import Rows
from vllm_av.replay.report.predictors import (
    Predictor,
    Source,
    bins_of,
    follow,
    judge_all,
    wilson,
)
from vllm_av.replay.scoring import halves, regimes
from vllm_av.replay.stream import lay_out
from vllm_av.replay.trace import Trace


def judged(trace: Trace, p: np.ndarray) -> Predictor:
    stream = lay_out(trace)
    sides = halves(stream, 0)
    return judge_all(Source("key", "title", p), stream, sides, regimes(trace["temperature"]))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return full(steps=300, requests=6, verified=2)


def test_the_conditional_probability_is_judged_on_the_scored_labels(trace: Trace) -> None:
    p = np.random.default_rng(1).random(trace.num_rows)
    found = judged(trace, p)
    rows = halves(lay_out(trace), 0).scored
    assert found.conditional.figures == figures(p[rows], trace["accepted"][rows])
    later = rows & (trace["position"] > 0)
    assert found.later.figures == figures(p[later], trace["accepted"][later])
    warm = rows & (trace["temperature"] == 1.0)
    assert found.regimes[1].figures == figures(p[warm], trace["accepted"][warm])
    assert found.regimes[1].name == "1"
    second = rows & (trace["position"] == 1)
    assert found.positions[1].figures == figures(p[second], trace["accepted"][second])
    assert found.positions[2].figures.labels == 0  # the target never saw the third


def test_survival_is_the_product_over_what_the_target_saw(trace: Trace) -> None:
    p = np.random.default_rng(1).random(trace.num_rows)
    table = p.reshape(-1, 3)
    product = np.column_stack([table[:, 0], table[:, 0] * table[:, 1]])
    group = np.arange(len(table))
    sound = (trace["masked"].reshape(-1, 3)[:, 0] < 0) & trace.finite.reshape(-1, 3)[:, 0]
    second_half = trace["step"].reshape(-1, 3)[:, 0] > 150  # of 300, from 1
    rows = sound & second_half
    accepted = trace["accepted"].reshape(-1, 3)[:, :2]
    expected = figures(product[rows].ravel(), accepted[rows].ravel(), np.repeat(group[rows], 2))
    assert judged(trace, p).survival.figures == pytest.approx(expected)


def test_a_predictor_that_is_silent_in_some_rows_says_how_many(trace: Trace) -> None:
    p = np.full(trace.num_rows, 0.5)
    rows = np.flatnonzero(halves(lay_out(trace), 0).scored)
    p[rows[::3]] = np.nan
    assert judged(trace, p).conditional.figures.labels == len(rows) - len(rows[::3])
    silent = judged(trace, np.full(trace.num_rows, np.nan))
    assert silent.conditional.figures.labels == 0
    assert silent.conditional.bins.labels == ()
    assert (silent.loss_steps, silent.losses) == ((), ())


def test_the_log_loss_over_time_adds_up_to_the_whole() -> None:
    trace = synthetic(steps=200, requests=4)
    p = np.random.default_rng(2).random(trace.num_rows)
    found = judged(trace, p)
    assert found.loss_steps[0] == 1
    assert found.loss_steps[-1] == 200
    rows = trace.labelled
    step = trace["step"][rows]
    lost = losses(p[rows], trace["accepted"][rows])
    before = 0.0
    for last, loss in zip(found.loss_steps, found.losses, strict=True):
        here = (step > before) & (step <= last)
        assert loss == pytest.approx(lost[here].mean())
        before = last


def test_the_bins_hold_equally_many_labels_in_order() -> None:
    rng = np.random.default_rng(3)
    p = rng.random(1000)
    y = rng.random(1000) < p
    bins = bins_of(p, y)
    assert sum(bins.labels) == 1000
    assert max(bins.labels) - min(bins.labels) <= 1
    order = np.argsort(p)
    start = 0
    for i, n in enumerate(bins.labels):
        rows = order[start : start + n]
        assert bins.predicted[i] == pytest.approx(p[rows].mean())
        assert bins.observed[i] == pytest.approx(y[rows].mean())
        assert bins.low[i] < bins.observed[i] < bins.high[i]
        start += n


def test_the_interval_covers_the_rate_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    for rate in (0.5, 0.9, 0.99):
        seen = rng.binomial(60, rate, 4000) / 60
        low, high = wilson(seen, np.full(4000, 60.0))
        assert np.mean((low <= rate) & (rate <= high)) == pytest.approx(0.95, abs=0.03)
        assert (low >= 0).all()
        assert (high <= 1).all()


class _Counter:
    """Says how many labels it has learnt from."""

    columns = ("log_odds",)

    def __init__(self) -> None:
        self.steps = self.labels = 0

    def steps_to_refit(self) -> int:
        return 7 - self.steps % 7

    def predict(self, rows: Rows) -> Floats:
        return np.full(len(rows["position"]), 1.0 / (2.0 + self.steps // 7))

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        self.steps += steps
        self.labels += int(labelled.sum())

    def state(self) -> dict[str, Any]:
        return {"slope": float(self.steps // 7), "labels": self.labels}


def test_a_learner_is_followed_from_its_start_to_its_end() -> None:
    trace = synthetic(steps=500, requests=2)
    p, history = follow(lay_out(trace, ("log_odds",)), _Counter())
    steps = [step for step, _ in history]
    assert history[0] == (0, {"slope": 0.0, "labels": 0})
    assert history[-1] == (500, {"slope": 71.0, "labels": int(trace.labelled.sum())})
    assert steps == sorted(set(steps))
    assert steps[1:4] == [7, 14, 21]
    for before, after in itertools.pairwise(steps):
        assert after <= 7 * math.ceil((before * 1.04 + 1) / 7) + 7  # none is left out for long
    expected = 1.0 / (2.0 + (trace["step"] - 1) // 7)
    assert np.array_equal(p, expected)


def test_a_long_trace_has_a_short_history() -> None:
    trace = synthetic(steps=20_000, requests=1, positions=1, intercepts=(0.0,))
    _, history = follow(lay_out(trace, ("log_odds",)), _Counter())
    assert 100 < len(history) < 250
