"""Predict, then learn: nobody sees a label before he has said what it would be."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.unit.estimator.streams import Upstream as OneRound
from tests.unit.replay.synthetic import synthetic
from vllm_av.estimator.reference import ReferenceEstimator
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.replay import replay as module
from vllm_av.replay.learners import LEARNERS
from vllm_av.replay.replay import replay, stretches
from vllm_av.replay.stream import lay_out

SHORT = EstimatorSettings(refit_interval=7, initial_intercepts=(0.1, 0.0, -0.2))


@dataclass
class Diary:
    """Predicts how many rows it has learnt from, and writes down what it is handed."""

    interval: int
    columns: tuple[str, ...] = ("log_odds",)
    seen: int = 0
    left: int = 0
    calls: list[tuple[int, int, int]] = field(default_factory=list)

    def steps_to_refit(self) -> int:
        return self.interval - self.left

    def predict(self, rows: Any) -> Any:
        return np.full(len(rows["log_odds"]), float(self.seen))

    def learn(self, rows: Any, labelled: Any, steps: int) -> None:
        self.calls.append((len(rows["accepted"]), int(labelled.sum()), steps))
        self.seen += len(rows["accepted"])
        self.left = (self.left + steps) % self.interval

    def state(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("interval", [1, 3, 1000])
def test_each_step_is_predicted_with_what_earlier_stretches_taught(interval: int) -> None:
    stream = lay_out(synthetic(steps=10, requests=2), ["log_odds"])
    diary = Diary(interval)
    predictions = replay(stream, diary)
    expected = (stream.step // interval) * interval * 6
    assert predictions.tolist() == expected.tolist()
    assert sum(steps for _, _, steps in diary.calls) == 10
    assert sum(labels for _, labels, _ in diary.calls) == stream.teaches.sum()


def test_a_stretch_ends_at_a_stop_and_at_the_row_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = lay_out(synthetic(steps=10, requests=2), ["log_odds"])
    diary = Diary(100)
    assert list(stretches(stream, diary, np.empty(stream.rows), iter([2, 2, 5]))) == [2, 5, 10]
    monkeypatch.setattr(module, "MOST_ROWS", 15)
    assert list(stretches(stream, Diary(100), np.empty(stream.rows))) == [2, 4, 6, 8, 10]
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    assert list(stretches(stream, Diary(100), np.empty(stream.rows))) == list(range(1, 11))


def test_steps_without_rows_are_steps() -> None:
    step = np.repeat([0, 1, 40], 6)
    stream = lay_out(synthetic(steps=3, requests=2, step=step), ["log_odds"])
    diary = Diary(10)
    replay(stream, diary)
    assert [steps for _, _, steps in diary.calls] == [10, 10, 10, 10, 1]


def test_the_pooled_estimator_is_the_reference_of_serving() -> None:
    """Fed step by step through the calls that serving makes, with labels by counts."""
    k = 3
    trace = synthetic(steps=60, requests=5, verified=2, temperatures=(0.5, 1.0))
    masked = np.full(trace.num_rows, -1)
    masked[trace["request"] == 3] = 0
    trace.columns["masked"] = masked
    stream = lay_out(trace, ["log_odds_scaled"])
    learner = LEARNERS["pooled_estimator"](SHORT, trace)
    predictions = replay(stream, learner).reshape(60, 5, k)
    reference = ReferenceEstimator(SHORT, 5, k)
    slots = np.arange(5)
    for step in range(60):
        part = slice(step * 5 * k, (step + 1) * 5 * k)
        feature = trace["log_odds_scaled"][part].reshape(5, k).astype(np.float64)
        reference.features[:] = feature
        reference.scores[:] = reference.slope * feature + reference.intercepts
        expected = 1.0 / (1.0 + np.exp(-reference.scores))
        np.testing.assert_allclose(predictions[step], expected, atol=1e-12)
        accepted = trace["accepted"][part].reshape(5, k).sum(axis=1)
        reference.observe(slots, accepted + 1, 2 - accepted, slots != 3)
    state = learner.state()
    assert state["refits"] == 60 // 7
    assert state["slope"] == pytest.approx(reference.slope, abs=1e-12)
    assert state["intercepts"] == pytest.approx(reference.intercepts.tolist(), abs=1e-12)
    assert abs(state["slope"] - SHORT.initial_slope) > 0.01


def test_upstreams_step_is_taken_once_a_round() -> None:
    trace = synthetic(steps=30, requests=6)
    stream = lay_out(trace, ["log_odds_scaled"])
    learner = LEARNERS["upstream"](SHORT, trace)
    replay(stream, learner)
    copy = OneRound(SHORT, 3)
    for first in range(0, 28, 7):
        part = slice(first * 18, (first + 7) * 18)
        copy.round(
            *(
                values[part].reshape(-1, 3)
                for values in (
                    stream["log_odds_scaled"].astype(np.float64),
                    stream["accepted"].astype(np.float64),
                    stream.labelled,
                )
            )
        )
    state = learner.state()
    assert state["refits"] == 4
    assert state["slope"] == pytest.approx(copy.slope, abs=1e-12)
    assert state["intercepts"] == pytest.approx(copy.intercepts.tolist(), abs=1e-12)


def test_scorers_that_learn_nothing_say_what_the_trace_holds() -> None:
    head = np.linspace(0.0, 1.0, 24).astype(np.float32)
    trace = synthetic(steps=4, requests=2, head=head, confidence=head[::-1])
    for name, expected in (
        ("max_probability", 1.0 / (1.0 + np.exp(-trace["log_odds_scaled"]))),
        ("confidence_head", head),
        ("recorded", head[::-1]),
    ):
        learner = LEARNERS[name](EstimatorSettings(), trace)
        predictions = replay(lay_out(trace, learner.columns), learner)
        np.testing.assert_allclose(predictions, expected, rtol=1e-6)
        assert learner.state() == {}
