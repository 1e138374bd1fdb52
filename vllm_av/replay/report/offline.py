"""Fits to a trace as a whole: which feature, which slope, which coefficients for whom.

Features and slopes are judged on rows that the fits have not seen, the very rows that the scorers
are judged on (:mod:`vllm_av.replay.scoring`); the coefficients of a workload or of a temperature
come from all of its labels.

Rule: one kind of fit, :func:`vllm_av.replay.optimum.fit`; a group with too few labels has none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vllm_av.estimator.formula import sigmoid
from vllm_av.replay.metrics import Bools, Floats, Integers, auc, figures, log_loss, losses
from vllm_av.replay.optimum import Fit, fit
from vllm_av.replay.report.features import Feature
from vllm_av.replay.report.model import FeatureRow, GroupFit, RegimeRow, SlopeRow

LEAST_LABELS = 100
"""Fewer say nothing about a slope."""
MOST_LABELS = 400_000
"""Of more, a random part is fitted: chance in a log-loss is then .001 nats, and far less in a
difference of two."""


@dataclass(frozen=True)
class Labels:
    """The labelled rows that fits are made from and judged on, [n] each.

    Attributes:
        position, label: of each row.
        regime: number of its temperature regime.
        fitted, scored: which side it is on; both, where a trace is too short for two sides.
        num_positions: K.
        every: one draft of a request in so many is here.
    """

    position: Integers
    label: Bools
    regime: Integers
    fitted: Bools
    scored: Bools
    num_positions: int
    every: int


def feature_row(feature: Feature, x: Floats, labels: Labels) -> FeatureRow:
    """How well a feature predicts, with a shared slope and an intercept for each position.

    Args:
        feature: what it is.
        x: [n], its values; NaN where it is not known.
        labels: of the same rows.
    """
    known = np.isfinite(x)
    scored = known & labels.scored
    if feature.fitted:
        rows = known & labels.fitted
        found = _fit(x, labels, rows)
        p = found.predict(x[scored], labels.position[scored]) if found else np.empty(0)
    else:
        p = x[scored]
    y = labels.label[scored][: len(p)]
    return FeatureRow(
        feature.key, feature.title, feature.scaled, feature.lossless, feature.fitted, figures(p, y)
    )


@dataclass(frozen=True)
class RegimeFits:
    """Lossless features, each fitted to each temperature regime alone.

    Attributes:
        rows: what they reach, one a regime.
        best: [regimes], the feature with the lowest log-loss and its fit; None where there is none.
    """

    rows: tuple[RegimeRow, ...]
    best: tuple[tuple[str, Fit] | None, ...]


def regime_fits(
    names: Sequence[str], values: Mapping[str, tuple[Feature, Floats]], labels: Labels
) -> RegimeFits:
    """Fit and judge.

    Args:
        names: of the regimes.
        values: key -> feature and its values [n]; those that are lossless and fitted count, and of
            these the ones that are known in every row (a head may be recorded in part).
        labels: of the same rows.
    """
    rows, best = [], []
    ours = {key: x for key, (feature, x) in values.items() if feature.lossless and feature.fitted}
    whole = {key: x for key, x in ours.items() if np.isfinite(x).all()}
    for number, name in enumerate(names):
        here = labels.regime == number
        scored = here & labels.scored
        y, position = labels.label[scored], labels.position[scored]
        fits = {key: _fit(x, labels, here & labels.fitted) for key, x in whole.items()}
        said = {
            key: found.predict(ours[key][scored], position)
            for key, found in fits.items()
            if found is not None
        }
        reached = {key: log_loss(said[key], y) if key in said else math.nan for key in ours}
        ranks = {key: auc(said[key], y) if key in said else math.nan for key in ours}
        rows.append(RegimeRow(name, int(scored.sum()), reached, ranks))
        known = [key for key in said if math.isfinite(reached[key])]
        winner = min(known, key=reached.__getitem__) if known else None
        law = fits[winner] if winner else None
        best.append((winner, law) if winner and law else None)
    return RegimeFits(tuple(rows), tuple(best))


def slope_row(feature: Feature, x: Floats, labels: Labels) -> SlopeRow | None:
    """One slope for all positions against one for each; None with one position or no fit."""
    shared = _fit(x, labels, labels.fitted)
    if shared is None or labels.num_positions < 2:
        return None
    scored = labels.scored
    p = shared.predict(x, labels.position)
    own = p.copy()
    slopes = []
    for k in range(labels.num_positions):
        here = labels.position == k
        alone = _fit_alone(x, labels, here & labels.fitted)
        slopes.append(alone.slope if alone else math.nan)
        if alone:
            own[here] = alone.predict(x[here], np.zeros(int(here.sum()), np.int64))
    y = labels.label[scored]
    gained = losses(own[scored], y) - losses(p[scored], y)
    error = float(gained.std() / math.sqrt(len(gained))) if len(gained) else math.nan
    return SlopeRow(
        key=feature.key,
        title=feature.title,
        scaled=feature.scaled,
        shared=figures(p[scored], y),
        own=figures(own[scored], y),
        error=error,
        slope=shared.slope,
        slopes=tuple(slopes),
    )


def group_fit(name: str, x: Floats, labels: Labels, rows: Bools, entropy: float) -> GroupFit:
    """The coefficients that suit one group, from all of its labels."""
    y = labels.label[rows]
    position = labels.position[rows]
    found = _fit(x, labels, rows)
    slope, error = math.nan, math.nan
    intercepts = np.full(labels.num_positions, math.nan)
    if found:
        slope, error = found.slope, slope_error(found, x[rows], position)
        seen = np.bincount(position, minlength=labels.num_positions) >= LEAST_LABELS
        intercepts = np.where(seen, found.intercepts, math.nan)
    rate = float(y.mean()) if len(y) else math.nan
    return GroupFit(name, len(y), rate, entropy, slope, error, tuple(float(b) for b in intercepts))


def slope_error(found: Fit, x: Floats, position: Integers) -> float:
    """Standard error of a slope, from the curvature of the log-loss at the fit.

    With w = p (1 - p), the intercepts eliminated: 1 / sqrt(sum_k sum w (x - mean_k)^2), mean_k
    being the mean of x weighted by w at position k.
    """
    p = sigmoid(found.slope * x + found.intercepts[position])
    w = p * (1.0 - p)
    total = np.bincount(position, w)
    first = np.bincount(position, w * x)
    mean = np.divide(first, total, out=np.zeros_like(total), where=total > 0)
    information = float((w * np.square(x - mean[position])).sum())
    return 1.0 / math.sqrt(information) if information > 0 else math.nan


def correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Pearson's r; NaN for fewer than three pairs, or where one of them does not vary."""
    pairs = np.array([(x, y) for x, y in zip(a, b, strict=True) if math.isfinite(x + y)])
    if len(pairs) < 3 or (np.ptp(pairs, axis=0) < 1e-12).any():
        return math.nan
    return float(np.corrcoef(pairs.T)[0, 1])


def _fit(x: Floats, labels: Labels, rows: Bools) -> Fit | None:
    position, y = labels.position[rows], labels.label[rows]
    return fit(x[rows], position, y, labels.num_positions) if _enough(y) else None


def _fit_alone(x: Floats, labels: Labels, rows: Bools) -> Fit | None:
    """Of the rows of one position."""
    y = labels.label[rows]
    return fit(x[rows], np.zeros(len(y), np.int64), y, 1) if _enough(y) else None


def _enough(label: Bools) -> bool:
    """Labels of both kinds, and not a handful."""
    return len(label) >= LEAST_LABELS and bool(label.any()) and not label.all()
