"""The estimator for mixed traffic on the columns of a trace.

Rule: nothing of the estimator is written a second time; here are only names of columns.
"""

from typing import Any

import numpy as np

from vllm_av.estimator.formula import sigmoid
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.estimator.tempered import rules
from vllm_av.estimator.tempered.formula import places
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

    def _features(self, rows: Rows) -> tuple[Floats, Floats]:
        log_odds = np.clip(rows["log_odds"].astype(np.float64), -self._clamp, self._clamp)
        if "margin" not in self.columns:
            return log_odds, np.zeros_like(log_odds)
        return log_odds, np.minimum(rows["margin"].astype(np.float64), self._clamp)

    def predict(self, rows: Rows) -> Floats:
        temperature = rows["temperature"].astype(np.float64)
        return sigmoid(self._estimator.score(*self._features(rows), temperature, rows["position"]))

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        if labelled.any():
            taught = {name: values[labelled] for name, values in rows.items()}
            log_odds, margin = self._features(taught)
            temperature = taught["temperature"].astype(np.float64)
            position = taught["position"]
            score = self._estimator.score(log_odds, margin, temperature, position)
            self._estimator.learn(
                log_odds, margin, places(temperature), position, taught["accepted"], score
            )
        self._estimator.pass_steps(steps)

    def state(self) -> dict[str, Any]:
        found = self._estimator
        size = len(rules.KNOTS) * rules.FEATURES
        by_knot = found.coefficients[:size].reshape(-1, rules.FEATURES).T.tolist()
        slopes = dict(zip(("log_q_max", "doubt", "margin"), by_knot, strict=False))
        return {
            "knots": list(rules.KNOTS),
            "slopes": slopes,
            "levels": by_knot[-1],
            "intercepts": found.coefficients[size:].tolist(),
            "labels": found.labels[size:].tolist(),
            "refits": found.refits,
        }
