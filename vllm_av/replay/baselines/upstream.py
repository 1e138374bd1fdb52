"""vLLM's own step, in NumPy: ``OnlineAcceptanceEstimator`` of vLLM 0.31 to 0.33.

One slope and one intercept per position on the log-odds after temperature; every 100 decode steps
one damped Newton step, whose slope is left out where it would turn the slope negative, and which
nothing bounds (vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py).

Rule: float64, where vLLM has float32: where it diverges, this goes further before it is infinite.
"""

from typing import Any

import numpy as np

from vllm_av.estimator.formula import sigmoid
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.replay.replay import Bools, Floats, Rows


class Upstream:
    """See the module."""

    columns = ("log_odds_scaled",)

    def __init__(self, settings: EstimatorSettings, num_positions: int) -> None:
        self.slope = float(settings.initial_slope)
        self.intercepts = np.array(settings.intercepts(num_positions))
        self.refits = 0
        self._settings = settings
        self._begin()

    def _begin(self) -> None:
        self._left = self._settings.refit_interval
        self._sums = np.zeros((6, len(self.intercepts)))

    def steps_to_refit(self) -> int:
        return self._left

    def predict(self, rows: Rows) -> Floats:
        return sigmoid(self.slope * self._feature(rows) + self.intercepts[rows["position"]])

    def _feature(self, rows: Rows) -> Floats:
        clamp = self._settings.log_odds_clamp
        return np.clip(rows["log_odds_scaled"].astype(np.float64), -clamp, clamp)

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        p = self.predict(rows)[labelled]
        feature, position = self._feature(rows)[labelled], rows["position"][labelled]
        weight, residual = p * (1.0 - p), rows["accepted"][labelled] - p
        weighted = weight * feature
        for total, values in zip(
            self._sums,
            (weighted * feature, weighted, weight, residual * feature, residual, None),
            strict=True,
        ):
            total += np.bincount(position, values, len(total))
        self._left -= steps
        if self._left <= 0:
            self._refit()
            self._begin()

    def _refit(self) -> None:
        self.refits += 1
        ridge, damping = self._settings.ridge, self._settings.damping
        a, b, c, g0, g1, n = self._sums
        c = c + ridge
        with np.errstate(all="ignore"):
            step = (g0.sum() - (b * g1 / c).sum()) / (a.sum() + ridge - (b * b / c).sum())
            step *= n.sum() / (n.sum() + damping)
            # False for NaN too.
            if not self.slope + step >= 0.0:
                step = 0.0
            steps = (g1 - b * step) / c * n / (n + damping)
        self.slope += float(step)
        self.intercepts = self.intercepts + np.where(np.isnan(steps), 0.0, steps)

    def state(self) -> dict[str, Any]:
        return {
            "slope": self.slope,
            "intercepts": self.intercepts.tolist(),
            "refits": self.refits,
        }
