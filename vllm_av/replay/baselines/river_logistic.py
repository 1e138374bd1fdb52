"""river's ``linear_model.LogisticRegression``: stochastic gradient descent, one label at a time.

Its features are all that the estimator has: per position an indicator, the log-odds and the margin
(where the trace has it) at temperature 1, the temperature, and the products of each with the
temperature; scaled to about 1, since it does not scale by itself. ``SGD`` with one learning rate
for weights and intercept; no penalty, as by default.

Rule: river itself learns; only its predictions are made here, from its weights, since one call a
row would take longer than all else.
"""

from typing import Any

import numpy as np

from vllm_av.estimator.formula import sigmoid
from vllm_av.replay.replay import Bools, Floats, Rows

_SCALES = {"log_odds": 4.0, "margin": 4.0}


class RiverLogistic:
    """See the module.

    Args:
        rate: learning rate.
        features: columns of the trace, of :data:`_SCALES`.
    """

    def __init__(
        self, num_positions: int, rate: float, features: tuple[str, ...] = ("log_odds",)
    ) -> None:
        from river import linear_model, optim

        self.columns = features
        self._model = linear_model.LogisticRegression(optimizer=optim.SGD(rate), intercept_lr=rate)
        self._positions = [str(k) for k in range(num_positions)]
        self._names = [*features, "temperature", *(f"{name} temperature" for name in features)]

    def steps_to_refit(self) -> int:
        return 1

    def _table(self, rows: Rows) -> Floats:
        """[n, features], without the indicators."""
        plain = [rows[name].astype(np.float64) / _SCALES[name] for name in self.columns]
        temperature = rows["temperature"].astype(np.float64)
        return np.column_stack([*plain, temperature, *(x * temperature for x in plain)])

    def predict(self, rows: Rows) -> Floats:
        weights = self._model.weights
        found = np.array([weights.get(name, 0.0) for name in self._names])
        intercepts = np.array([weights.get(name, 0.0) for name in self._positions])
        score = self._table(rows) @ found + intercepts[rows["position"]]
        return sigmoid(score + self._model.intercept)

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        table = self._table(rows)[labelled].tolist()
        position = rows["position"][labelled].tolist()
        accepted = rows["accepted"][labelled].tolist()
        for values, k, y in zip(table, position, accepted, strict=True):
            x = dict(zip(self._names, values, strict=True))
            x[self._positions[k]] = 1.0
            self._model.learn_one(x, y)

    def state(self) -> dict[str, Any]:
        weights = {str(name): float(value) for name, value in self._model.weights.items()}
        return {"weights": weights, "intercept": float(self._model.intercept)}
