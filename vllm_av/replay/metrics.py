r"""How good predictions of acceptance are: AUC, log-loss, Brier score, calibration error.

    AUC         chance that an accepted draft has the higher prediction than a rejected one; equal
                predictions count one half
    log-loss    mean of -log p(label), nats; p is kept within LEAST and 1 - LEAST, as scikit-learn
                does, so that a prediction of 0 or 1 that is wrong costs 36 nats and not infinity
    Brier       mean of (p - label)^2
    ECE         sum over the bins of n_b / n |mean p - mean label|, of two kinds of bins:
                  width   [i / 15, (i + 1) / 15), the last one with its upper end
                  mass    the rows in order of prediction: number j of n, from 0, is of bin
                          floor(15 j / n). Rows of equal prediction that a cut divides have no
                          order of their own: each stands for the mean label of all of its equals

An ECE says nothing without the number of labels: chance alone gives a perfect predictor

    sum over the bins of sqrt(2 / pi sum p (1 - p)) / n,

the mean of |normal| of the bins' variances: .049 at 1,000 labels and p = 1/2, .011 at 20,000.
Rows of one request-step depend on each other in the survival product, whose outcomes are nested:
there cov = s_j (1 - s_i) for i < j enters the variance too.

Rule: NumPy alone; every function takes as many rows as it gets, and gives NaN where there are none.
"""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

BINS = 15
LEAST = float(np.finfo(np.float64).eps)
"""A prediction nearer to 0 or 1 counts as this near, in the log-loss."""


@dataclass(frozen=True)
class Figures:
    """What a table says of one set of rows; NaN where there are none.

    Attributes:
        labels: rows.
        predicted, observed: means.
        ece_width, ece_mass: 15 bins each.
        chance_width, chance_mass: what chance gives a perfect predictor there.
    """

    labels: int
    predicted: float
    observed: float
    auc: float
    log_loss: float
    brier: float
    ece_width: float
    ece_mass: float
    chance_width: float
    chance_mass: float

    def as_dict(self) -> dict[str, int | float | None]:
        """For ``--json``: NaN, which JSON has not, is null."""
        return {key: None if value != value else value for key, value in asdict(self).items()}


def figures(probability: Floats, label: Bools, group: Integers | None = None) -> Figures:
    """Every figure of one set of rows.

    Args:
        probability: [n], within 0 and 1.
        label: [n].
        group: [n], the request-step of each row, where the outcomes of one are nested, and its
            rows adjacent and in order; None where each row is by itself.
    """
    p = np.asarray(probability, np.float64)
    y = np.asarray(label, np.float64)
    if not len(p):
        return Figures(0, *(float("nan"),) * 9)
    order = np.argsort(p, kind="stable")
    starts = _starts(p[order])
    width, mass = _width(p), _mass(order)
    evened = np.empty(len(p))
    evened[order] = _evened(y[order], starts)
    variance_width, variance_mass = (_variance(p, bins, group) for bins in (width, mass))
    return Figures(
        labels=len(p),
        predicted=float(p.mean()),
        observed=float(y.mean()),
        auc=_auc(y[order], starts),
        log_loss=log_loss(p, y),
        brier=float(np.square(p - y).mean()),
        ece_width=_error(p, y, width),
        ece_mass=_error(p, evened, mass),
        chance_width=_chance(variance_width, len(p)),
        chance_mass=_chance(variance_mass, len(p)),
    )


def auc(probability: Floats, label: Bools) -> float:
    """Area under the receiver operating characteristic; NaN without labels of both kinds."""
    order = np.argsort(probability, kind="stable")
    return _auc(np.asarray(label, np.float64)[order], _starts(np.asarray(probability)[order]))


def log_loss(probability: Floats, label: Bools | Floats) -> float:
    """Nats a row."""
    if not len(probability):
        return float("nan")
    return float(losses(probability, label).mean())


def losses(probability: Floats, label: Bools | Floats) -> Floats:
    """[n], each row's log-loss."""
    p = np.clip(np.asarray(probability, np.float64), LEAST, 1.0 - LEAST)
    return np.asarray(-np.log(np.where(np.asarray(label, bool), p, 1.0 - p)))


def ece_width(probability: Floats, label: Bools) -> float:
    """Expected calibration error over bins of equal width."""
    p = np.asarray(probability, np.float64)
    return _error(p, np.asarray(label, np.float64), _width(p))


def ece_mass(probability: Floats, label: Bools) -> float:
    """Expected calibration error over bins of equally many rows."""
    p, y = np.asarray(probability, np.float64), np.asarray(label, np.float64)
    order = np.argsort(p, kind="stable")
    return _error(p[order], _evened(y[order], _starts(p[order])), _runs(len(p)))


def width_bins(probability: Floats) -> Integers:
    """[n], the bin of equal width that each row lies in."""
    return _width(np.asarray(probability, np.float64))


def mass_bins(probability: Floats) -> Integers:
    """[n], the bin of equal mass; equal predictions that a cut divides fall as they come."""
    return _mass(np.argsort(probability, kind="stable"))


def _starts(ordered: Floats) -> Integers:
    """Where each run of equal predictions begins."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))


def _auc(label: Floats, starts: Integers) -> float:
    """Of labels in order of prediction: each accepted one beats the rejected ones before its run
    and half of those within it."""
    accepted = np.add.reduceat(label, starts) if len(label) else np.zeros(0)
    rejected = np.diff(np.append(starts, len(label))) - accepted
    pairs = accepted.sum() * rejected.sum()
    if pairs == 0.0:
        return float("nan")
    before = np.cumsum(rejected) - rejected
    return float((accepted * (before + 0.5 * rejected)).sum() / pairs)


def _evened(label: Floats, starts: Integers) -> Floats:
    """Each row's label replaced by the mean of its run's."""
    if not len(label):
        return label
    lengths = np.diff(np.append(starts, len(label)))
    return np.repeat(np.add.reduceat(label, starts) / lengths, lengths)


def _width(p: Floats) -> Integers:
    return np.minimum((p * BINS).astype(np.int64), BINS - 1)


def _runs(rows: int) -> Integers:
    """[rows], 0, 0, ..., 14."""
    return np.arange(rows, dtype=np.int64) * BINS // max(rows, 1)


def _mass(order: Integers) -> Integers:
    bins = np.empty(len(order), np.int64)
    bins[order] = _runs(len(order))
    return bins


def _error(p: Floats, y: Floats, bins: Integers) -> float:
    if not len(p):
        return float("nan")
    return float(np.abs(np.bincount(bins, p - y, BINS)).sum() / len(p))


def _variance(p: Floats, bins: Integers, group: Integers | None) -> Floats:
    """[BINS], of the number of accepted rows of each bin, if the predictions are the law."""
    variance: Floats = np.bincount(bins, p * (1.0 - p), BINS).astype(np.float64)
    lag = 1
    while group is not None and lag < len(p):
        same = group[lag:] == group[:-lag]
        if not same.any():
            break
        same &= bins[lag:] == bins[:-lag]
        variance += 2.0 * np.bincount(bins[lag:], same * p[lag:] * (1.0 - p[:-lag]), BINS)
        lag += 1
    return variance


def _chance(variance: Floats, rows: int) -> float:
    return float(np.sqrt(2.0 / np.pi * variance).sum() / rows)
