"""The scorers that can be replayed: what serving runs on tensors, on the columns of a trace.

    online_estimator    learns
    pooled_estimator    learns
    upstream            learns: vLLM's own estimator, for comparison (replay.baselines)
    max_probability     the drafter's top probability after temperature, as it is
    confidence_head     the head's probability, as it is
    recorded            what the scorer in force said when the trace was recorded, as it is

A scorer of another package reads logits, which no trace holds: it cannot be replayed, but is
``recorded`` where it was in force.

Rule: settings come through the config of serving, and mean here what they mean there.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from vllm_av.estimator.formula import sigmoid
from vllm_av.estimator.reference import ReferenceEstimator
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.replay.baselines.upstream import Upstream
from vllm_av.replay.replay import Bools, Floats, Learner, Rows
from vllm_av.replay.tempered import OnlineEstimator
from vllm_av.replay.trace import Trace

NEVER = 1 << 40
"""Decode steps until a scorer changes that never learns."""


class PooledEstimator:
    """One slope and one intercept per position for all traffic, refitted in rounds."""

    columns = ("log_odds_scaled",)

    def __init__(self, settings: EstimatorSettings, num_positions: int) -> None:
        self._estimator = ReferenceEstimator(settings, 1, num_positions)
        self._clamp = settings.log_odds_clamp
        self._interval = settings.refit_interval
        self._left = settings.refit_interval

    def steps_to_refit(self) -> int:
        return self._left

    def _scores(self, rows: Rows) -> tuple[Floats, Floats]:
        feature = np.clip(rows["log_odds_scaled"].astype(np.float64), -self._clamp, self._clamp)
        estimator = self._estimator
        return feature, estimator.slope * feature + estimator.intercepts[rows["position"]]

    def predict(self, rows: Rows) -> Floats:
        return sigmoid(self._scores(rows)[1])

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        if labelled.any():
            feature, score = self._scores(rows)
            place = np.cumsum(rows["position"] == 0) - 1, rows["position"]
            shape = int(place[0][-1]) + 1, self._estimator.num_speculative_steps

            def table(values: Any) -> Any:
                found = np.zeros(shape, np.asarray(values).dtype)
                found[place] = values
                return found

            self._estimator.learn(*map(table, (feature, score, rows["accepted"], labelled)))
        self._left -= steps
        if self._left <= 0:
            self._estimator.refit()
            self._left = self._interval

    def state(self) -> dict[str, Any]:
        found = self._estimator
        return {
            "slope": found.slope,
            "intercepts": found.intercepts.tolist(),
            "refits": found.refits,
            "undone": found.undone,
            "restarts": found.restarts,
        }


class MaxProbability:
    """The drafter's own top probability after temperature."""

    columns = ("log_odds_scaled",)

    def steps_to_refit(self) -> int:
        return NEVER

    def predict(self, rows: Rows) -> Floats:
        return sigmoid(rows["log_odds_scaled"].astype(np.float64))

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        """Nothing."""

    def state(self) -> dict[str, Any]:
        return {}


class ConfidenceHead(MaxProbability):
    """The probability that the checkpoint's head gave."""

    columns = ("head",)

    def predict(self, rows: Rows) -> Floats:
        return rows["head"].astype(np.float64)


class Recorded(MaxProbability):
    """What the scorer in force said."""

    columns = ("confidence",)

    def predict(self, rows: Rows) -> Floats:
        return rows["confidence"].astype(np.float64)


Build = Callable[[EstimatorSettings, Trace], Learner]


def _online(settings: EstimatorSettings, trace: Trace) -> Learner:
    return OnlineEstimator(settings, trace.info.num_speculative_tokens, margin=trace.has("margin"))


LEARNERS: dict[str, Build] = {
    "online_estimator": _online,
    "pooled_estimator": lambda settings, trace: PooledEstimator(
        settings, trace.info.num_speculative_tokens
    ),
    "upstream": lambda settings, trace: Upstream(settings, trace.info.num_speculative_tokens),
    "max_probability": lambda settings, trace: MaxProbability(),
    "confidence_head": lambda settings, trace: ConfidenceHead(),
    "recorded": lambda settings, trace: Recorded(),
}
"""Name -> what builds it from the estimator's settings, for a trace."""
