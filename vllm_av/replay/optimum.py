r"""What a fit that knew the traffic would reach: logistic regression, offline, by scikit-learn.

    p = sigmoid(slope x + intercept_k)            k = draft position, x = one feature

fitted on the one part of a trace and scored on the other. One fit per temperature regime, and one
for all of them.

The solver is ``newton-cholesky`` with C = 1e3 on the standardised feature: a penalty of half a
thousandth nat on each squared coefficient, for all labels together, which none of them feels and
which keeps separable ones finite. A constant feature and a position of one outcome are no special
cases for it. A position that has no label in the fitted part gets the mean of the others'
intercepts.

Rule: the rows that are scored are exactly those that a learner is scored on (:mod:`scoring`).
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.errors import Code, TraceError
from vllm_av.estimator.formula import sigmoid
from vllm_av.replay.columns import CLAMP
from vllm_av.replay.metrics import Bools, Floats
from vllm_av.replay.stream import Stream
from vllm_av.replay.trace import Trace

PENALTY = 1e-3
FEATURES = (
    "log_odds", "log_odds_scaled", "entropy", "entropy_scaled", "margin", "margin_scaled",
)  # fmt: skip
"""Of the drafter's distribution alone, so lossless: no drawn token."""
HEAD = "head"
"""The confidence head's log-odds, which are lossless too."""

_MOST_STEPS = 100


def features_in(trace: Trace) -> tuple[str, ...]:
    """The single features that a trace has of every row that is a distribution."""
    whole = trace.has(HEAD) and bool(np.isfinite(trace[HEAD][trace.finite]).all())
    return (*filter(trace.has, FEATURES), *((HEAD,) if whole else ()))


def feature(columns: Mapping[str, NDArray[Any]] | Stream, name: str) -> NDArray[Any]:
    """[n], the feature as it is fitted on."""
    values = columns[name]
    if name != HEAD:
        return values
    p = values.astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(p) - np.log1p(-p), -CLAMP, CLAMP))


@dataclass(frozen=True)
class Fit:
    """Coefficients.

    Attributes:
        slope: of the feature.
        intercepts: [K].
        labels: that it was fitted on.
    """

    slope: float
    intercepts: Floats
    labels: int

    def predict(self, values: NDArray[Any], position: NDArray[Any]) -> Floats:
        """[n] probabilities."""
        return sigmoid(self.slope * values.astype(np.float64) + self.intercepts[position])

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "slope": self.slope,
            "intercepts": self.intercepts.tolist(),
            "labels": self.labels,
        }


def fit(values: NDArray[Any], position: NDArray[Any], label: Bools, num_positions: int) -> Fit:
    """Fit one regression.

    Args:
        values: [n], of the feature, finite.
        position: [n].
        label: [n].
        num_positions: K.

    Raises:
        TraceError: ``AV-TRACE-LIBRARY`` where scikit-learn is not installed.
    """
    seen = np.bincount(position, minlength=num_positions) > 0
    x = np.asarray(values, np.float64)
    rate = (label.sum() + 0.5) / (len(label) + 1.0)
    overall = float(np.log(rate / (1.0 - rate)))
    if label.all() or not label.any():
        # No classes to tell apart: the same for every row, with half a label of either kind.
        return Fit(0.0, np.full(num_positions, overall), len(label))
    # Centred and scaled, so that the solver's equations are sound whatever the feature's unit.
    centre, scale = float(x.mean()), float(x.std())
    scale = scale if scale > 1e-6 * (1.0 + abs(centre)) else np.inf
    columns = np.zeros((len(x), 1 + int(seen.sum())))
    columns[:, 0] = (x - centre) / scale
    columns[np.arange(len(x)), np.cumsum(seen)[position]] = 1.0
    with warnings.catch_warnings():
        # Where labels are separable its equations fail, it says so, and goes on with L-BFGS.
        warnings.simplefilter("ignore")
        found = _regression().fit(columns, label).coef_[0]
    slope = float(found[0] / scale)
    intercepts = np.full(num_positions, float(found[1:].mean()))
    intercepts[seen] = found[1:]
    shift = slope * centre
    return Fit(slope, intercepts - shift, len(label))


def _regression() -> Any:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise TraceError(
            Code.TRACE_LIBRARY,
            given=f"scikit-learn cannot be imported ({error})",
            allowed="it beside pyarrow, for the offline optimum",
            fix="pip install 'vllm_av[traces]'",
        ) from error
    return LogisticRegression(
        C=1.0 / PENALTY,
        solver="newton-cholesky",
        fit_intercept=False,
        tol=1e-6,
        max_iter=_MOST_STEPS,
    )


def regimes_fit(
    values: NDArray[Any],
    position: NDArray[Any],
    label: Bools,
    regime: NDArray[np.int64],
    num_positions: int,
    fitted: Bools,
) -> tuple[Floats, Sequence[Fit | None]]:
    """One fit per regime, and what each says of all of its rows.

    Args:
        values, position, label, regime: [n].
        num_positions: K.
        fitted: [n], the rows that are fitted on.

    Returns:
        [n] predictions, NaN in a regime that has no row to fit on, and the fits by regime.
    """
    predictions = np.full(len(values), np.nan)
    fits: list[Fit | None] = []
    for number in range(int(regime.max()) + 1 if len(regime) else 0):
        own = regime == number
        rows = own & fitted
        if not rows.any():
            fits.append(None)
            continue
        found = fit(values[rows], position[rows], label[rows], num_positions)
        predictions[own] = found.predict(values[own], position[own])
        fits.append(found)
    return predictions, fits
