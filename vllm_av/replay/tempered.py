"""The estimator for mixed traffic on the columns of a trace.

Rule: nothing of the estimator is written a second time; here are only names of columns.
"""

from typing import Any

import numpy as np

from vllm_av.estimator.formula import sigmoid
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.estimator.tempered import rules
from vllm_av.estimator.tempered.formula import earlier, places
from vllm_av.estimator.tempered.reference import TemperedReference
from vllm_av.replay.replay import Bools, Floats, Rows


class OnlineEstimator:
    """Slopes that move with temperature, one intercept per position.

    Args:
        settings: of the estimator.
        num_positions: K.
        margin: False for a trace without that column, whose slope then stays 0.
    """

    def __init__(
        self, settings: EstimatorSettings, num_positions: int, *, margin: bool = True
    ) -> None:
        self._estimator = TemperedReference(settings, 1, num_positions)
        self._clamp = settings.log_odds_clamp
        self.columns = ("log_odds", "margin") if margin else ("log_odds",)

    def steps_to_refit(self) -> int:
        return self._estimator.steps_to_refit()

    def _features(self, rows: Rows, wanted: Bools | slice) -> tuple[Floats, Floats, Floats]:
        """Of the wanted ones of whole request-steps: log-odds, margin, before."""
        log_odds = np.clip(rows["log_odds"].astype(np.float64), -self._clamp, self._clamp)
        position = rows["position"]
        place = np.cumsum(position == 0) - 1, position
        blocks = np.zeros((int(place[0][-1]) + 1, self._estimator.num_speculative_steps))
        blocks[place] = log_odds
        before = earlier(blocks)[place][wanted]
        log_odds = log_odds[wanted]
        if "margin" not in self.columns:
            return log_odds, np.zeros_like(log_odds), before
        return log_odds, np.minimum(rows["margin"][wanted].astype(np.float64), self._clamp), before

    def predict(self, rows: Rows) -> Floats:
        position = rows["position"]
        if not len(position):
            return np.zeros(0)
        temperature = rows["temperature"].astype(np.float64)
        found = self._features(rows, slice(None))
        return sigmoid(self._estimator.score(*found, temperature, position))

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        if labelled.any():
            found = self._features(rows, labelled)
            temperature = rows["temperature"][labelled].astype(np.float64)
            position = rows["position"][labelled]
            score = self._estimator.score(*found, temperature, position)
            label = rows["accepted"][labelled]
            self._estimator.learn(*found, places(temperature), position, label, score)
        self._estimator.pass_steps(steps)

    def state(self) -> dict[str, Any]:
        found = self._estimator
        size = len(rules.KNOTS) * rules.FEATURES
        by_knot = found.coefficients[:size].reshape(-1, rules.FEATURES).T.tolist()
        slopes = dict(zip(("log_q_max", "doubt", "margin", "before"), by_knot, strict=False))
        return {
            "knots": list(rules.KNOTS),
            "slopes": slopes,
            "levels": by_knot[-1],
            "intercepts": found.coefficients[size:].tolist(),
            "labels": found.labels[size:].tolist(),
            "refits": found.refits,
        }
