"""Each predictor's probabilities over the trace, and how good they are.

Rule: all predictors are judged on the same rows where they can be; one that is silent in some rows
(a head that was recorded in part) says in how many it spoke.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.replay import metrics
from vllm_av.replay.metrics import Bools, Figures, Floats
from vllm_av.replay.replay import Learner, stretches
from vllm_av.replay.scoring import Halves, Regimes
from vllm_av.replay.stream import Stream

LOSS_POINTS = 30
"""Points of the log-loss over time."""


HISTORY_GROWTH = 1.04
"""The coefficients are noted at steps that grow by this factor: enough for a logarithmic axis."""


@dataclass(frozen=True)
class Source:
    """A predictor before it is judged.

    Attributes:
        key, title: for JSON, for people.
        probability: [n], NaN where it says nothing.
        history: (decode step, state) of each refit, the start first; empty where it does not learn.
    """

    key: str
    title: str
    probability: Floats
    history: Sequence[tuple[int, dict[str, Any]]] = ()


@dataclass(frozen=True)
class Bins:
    """A reliability diagram: bins of equally many labels, in order of prediction.

    Attributes:
        predicted, observed: means of the bin.
        low, high: Wilson's 95% interval of the observed rate, as if the labels were independent.
        labels: in each bin.
    """

    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Judged:
    """Figures and reliability of one set of rows."""

    name: str
    figures: Figures
    bins: Bins


@dataclass(frozen=True)
class Predictor:
    """A predictor, judged.

    Attributes:
        conditional: the probability of acceptance given that all before was accepted.
        survival: the product up to a position, against whether all up to there was accepted.
        later: ``conditional`` without the first position.
        positions: ``conditional`` of each position.
        regimes, survival_regimes: of each temperature regime.
        loss_steps, losses: log-loss over time, the mean since the point before.
        history: see :class:`Source`.
    """

    key: str
    title: str
    conditional: Judged
    survival: Judged
    later: Judged
    positions: tuple[Judged, ...]
    regimes: tuple[Judged, ...]
    survival_regimes: tuple[Judged, ...]
    loss_steps: tuple[float, ...]
    losses: tuple[float, ...]
    history: Sequence[tuple[int, dict[str, Any]]]


def bins_of(probability: Floats, label: Bools) -> Bins:
    """The reliability diagram of some rows; no bins where there are none."""
    number = metrics.mass_bins(probability)
    count = np.bincount(number, minlength=metrics.BINS)
    full = count > 0
    n = count[full].astype(np.float64)
    predicted = np.bincount(number, probability, metrics.BINS)[full] / n
    observed = np.bincount(number, label.astype(np.float64), metrics.BINS)[full] / n
    low, high = wilson(observed, n)
    return Bins(
        predicted=tuple(predicted.tolist()),
        observed=tuple(observed.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        labels=tuple(count[full].tolist()),
    )


def wilson(rate: Floats, labels: Floats, deviations: float = 1.96) -> tuple[Floats, Floats]:
    """The interval of a rate in which it lies with 95%."""
    z2 = deviations * deviations
    middle = (rate + z2 / (2 * labels)) / (1 + z2 / labels)
    half = deviations * np.sqrt(rate * (1 - rate) / labels + z2 / (4 * labels**2))
    half /= 1 + z2 / labels
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def judge(
    name: str, probability: Floats, label: Bools, group: NDArray[np.int64] | None = None
) -> Judged:
    """All of it for some rows; those without a prediction are left out.

    Args:
        probability: [n], NaN where there is none.
        label: [n].
        group: see :func:`vllm_av.replay.metrics.figures`.
    """
    spoken = np.isfinite(probability)
    if not spoken.all():
        probability, label = probability[spoken], label[spoken]
        group = group if group is None else group[spoken]
    figures = metrics.figures(probability, label, group)
    return Judged(name, figures, bins_of(probability, label))


def follow(stream: Stream, learner: Learner) -> tuple[Floats, list[tuple[int, dict[str, Any]]]]:
    """Replay ``learner``; its predictions [n], and its state at the start and as it changes."""
    predictions = np.empty(stream.rows)
    history = [(0, learner.state())]
    after, due = 0, 1.0
    for after in stretches(stream, learner, predictions):
        if after >= due:
            history.append((after, learner.state()))
            due = max(after + 1, after * HISTORY_GROWTH)
    if history[-1][0] != after:
        history.append((after, learner.state()))
    return predictions, history


def judge_all(source: Source, stream: Stream, sides: Halves, regimes: Regimes) -> Predictor:
    """Judge a predictor.

    Args:
        source: with probabilities for all rows of ``stream``.
        stream: the trace's rows, in its order.
        sides: which rows figures are of.
        regimes: of the rows' temperatures.
    """
    label, position = stream["accepted"], stream["position"]
    # What survives is known wherever the target looked; it does not look because of the outcome.
    seen = stream["verified"] & stream.usable & (stream.step >= sides.begins)
    product = stream.running(source.probability)

    def conditional(name: str, rows: Bools) -> Judged:
        rows = rows & sides.scored
        return judge(name, source.probability[rows], label[rows])

    def survival(name: str, rows: Bools) -> Judged:
        rows = rows & seen
        return judge(name, product[rows], label[rows], stream.group[rows])

    every = np.ones(stream.rows, bool)
    within = [(name, regimes.of == number) for number, name in enumerate(regimes.names)]
    steps, losses = _over_time(source.probability, stream)
    return Predictor(
        key=source.key,
        title=source.title,
        conditional=conditional("all", every),
        survival=survival("all", every),
        later=conditional("all but the first position", position > 0),
        positions=tuple(conditional(str(k), position == k) for k in range(stream.num_positions)),
        regimes=tuple(conditional(name, rows) for name, rows in within),
        survival_regimes=tuple(survival(name, rows) for name, rows in within),
        loss_steps=steps,
        losses=losses,
        history=source.history,
    )


def _over_time(probability: Floats, stream: Stream) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean log-loss of the labels between decode steps that grow in equal proportion."""
    rows = stream.labelled & stream.usable & np.isfinite(probability)
    if not rows.any():
        return (), ()
    edges = np.unique(np.geomspace(1, max(stream.steps, 2), LOSS_POINTS).astype(np.int64))
    part = np.searchsorted(edges, stream.step[rows] + 1)
    lost = metrics.losses(probability[rows], stream["accepted"][rows])
    count = np.bincount(part, minlength=len(edges))
    full = count > 0
    means = np.bincount(part, lost, len(edges))[full] / count[full]
    return tuple(map(float, edges[full])), tuple(map(float, means))
