r"""Online Platt scaling with calibeating (C. Gupta, A. Ramdas; arXiv 2305.00070).

Platt scaling fits p = sigmoid(a f + b), f = logit of the base forecast, which here is the drafter's
top probability at temperature 1. Online (OPS): one online Newton step per label,

    g = (p - y) (f, 1)        A <- A + g g'        theta <- P_A(theta - A^-1 g / gamma)

with P_A the projection, in A's norm, onto the ball of radius ``RADIUS``. It starts from
A = ``rho`` I, a = 1, b = 0: the base forecast itself. Calibeating, by tracking (TOPS): in place of
the forecast comes the mean label so far of the forecasts that fell into its bin of width 0.1, or
the middle of the bin before there is one.

Each draft position has its own (a, b); the bins are shared. Labels of one decode step are learnt
one after the other, after all of the step was predicted.

Rule: plain numbers, no arrays, in the loop: it is one label at a time by its nature.
"""

from dataclasses import dataclass
from math import exp, sqrt
from typing import Any

import numpy as np

from vllm_av.estimator.formula import sigmoid
from vllm_av.replay.replay import Bools, Floats, Rows

RADIUS = 100.0
BINS = 10


@dataclass
class _Newton:
    """One position's a and b, and the matrix A."""

    rho: float
    gamma: float
    a: float = 1.0
    b: float = 0.0

    def __post_init__(self) -> None:
        self._aa, self._ab, self._bb = self.rho, 0.0, self.rho

    def learn(self, f: float, y: float) -> None:
        z = self.a * f + self.b
        small = exp(-abs(z))
        p = (1.0 if z >= 0 else small) / (1.0 + small)
        gb = p - y
        ga = gb * f
        self._aa += ga * ga
        self._ab += ga * gb
        self._bb += gb * gb
        determinant = (self._aa * self._bb - self._ab * self._ab) * self.gamma
        self.a -= (self._bb * ga - self._ab * gb) / determinant
        self.b -= (self._aa * gb - self._ab * ga) / determinant
        if self.a * self.a + self.b * self.b > RADIUS * RADIUS:
            self._project()

    def _project(self) -> None:
        """The nearest point of the ball in A's norm: (A + m I)^-1 A theta, m by bisection."""
        ca = self._aa * self.a + self._ab * self.b
        cb = self._ab * self.a + self._bb * self.b
        low, high = 0.0, 1e18
        for _ in range(200):
            m = sqrt(max(low, 1e-9) * high) if high > 1.0 else 0.5 * (low + high)
            aa, bb = self._aa + m, self._bb + m
            determinant = aa * bb - self._ab * self._ab
            a = (bb * ca - self._ab * cb) / determinant
            b = (aa * cb - self._ab * ca) / determinant
            if a * a + b * b > RADIUS * RADIUS:
                low = m
            else:
                high, self.a, self.b = m, a, b
            if high - low <= 1e-9 * high:
                break


class PlattWithCalibeating:
    """See the module.

    Args:
        gamma: the inverse of the step size; the paper's code: 0.1.
        rho: the matrix at the start; the paper's code: 100.
        calibeating: without it, plain online Platt scaling.
    """

    columns = ("log_odds",)

    def __init__(
        self,
        num_positions: int,
        gamma: float = 0.1,
        rho: float = 100.0,
        *,
        calibeating: bool = True,
    ) -> None:
        self._positions = [_Newton(rho, gamma) for _ in range(num_positions)]
        self._calibeating = calibeating
        self._seen, self._accepted = np.zeros((2, BINS))

    def steps_to_refit(self) -> int:
        return 1

    def _scaled(self, rows: Rows) -> Floats:
        a, b = np.array([(each.a, each.b) for each in self._positions]).T
        return sigmoid(a[rows["position"]] * rows["log_odds"] + b[rows["position"]])

    def predict(self, rows: Rows) -> Floats:
        p = self._scaled(rows)
        if not self._calibeating:
            return p
        middle = (np.arange(BINS) + 0.5) / BINS
        means = np.where(self._seen > 0, self._accepted / np.maximum(self._seen, 1.0), middle)
        return np.asarray(means[_bin(p)])

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        fallen = _bin(self._scaled(rows)[labelled])
        accepted = rows["accepted"][labelled]
        self._seen += np.bincount(fallen, minlength=BINS)
        self._accepted += np.bincount(fallen, accepted, BINS)
        feature = rows["log_odds"][labelled].astype(np.float64).tolist()
        position = rows["position"][labelled].tolist()
        for k, f, y in zip(position, feature, accepted.tolist(), strict=True):
            self._positions[k].learn(f, y)

    def state(self) -> dict[str, Any]:
        return {
            "slopes": [each.a for each in self._positions],
            "intercepts": [each.b for each in self._positions],
        }


def _bin(p: Floats) -> Any:
    return np.minimum((p * BINS).astype(np.int64), BINS - 1)
