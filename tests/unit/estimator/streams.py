"""Streams of labelled drafts whose law is known, and vLLM's own step in NumPy to compare with."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.estimator.formula import Floats, sigmoid
from vllm_av.estimator.reference import ReferenceEstimator
from vllm_av.estimator.settings import EstimatorSettings

Generator = np.random.Generator
Rows = tuple[Floats, Floats]
CLAMP = 40.0


def softplus(z: Floats) -> Floats:
    return np.asarray(np.logaddexp(0.0, z))


@dataclass(frozen=True)
class Stream:
    """A stationary stream: per position a set of features, each with a weight and a rate.

    Attributes:
        features: [K, J].
        rates: [K, J], how often a draft with this feature is accepted.
        weights: [K, J], how often it comes; each row sums to 1.
    """

    features: Floats
    rates: Floats
    weights: Floats

    @property
    def positions(self) -> int:
        return len(self.features)

    @property
    def base(self) -> Floats:
        """[K], the acceptance rate of each position."""
        return np.asarray((self.weights * self.rates).sum(axis=1))

    def draw(self, rng: Generator, labels: int) -> Rows:
        """Features and labels, each [labels, K]: every position has as many."""
        chosen = np.stack(
            [rng.choice(len(w), size=labels, p=w) for w in self.weights]
        )  # [K, labels]
        feature = np.take_along_axis(self.features, chosen, 1)
        rate = np.take_along_axis(self.rates, chosen, 1)
        return feature.T.copy(), (rng.random(rate.shape) < rate).T.astype(np.float64)

    def loss(self, slope: float, intercepts: Floats) -> float:
        """Expected log-loss of a held-out row, nats."""
        z = slope * self.features + intercepts[:, None]
        return float((self.weights * (softplus(z) - self.rates * z)).sum() / self.positions)


def sampled(
    features: Callable[[Generator, tuple[int, int]], Floats],
    rates: Callable[[Floats], Floats] | Floats | float,
    positions: int = 3,
    atoms: int = 3000,
) -> Stream:
    """A continuous law, as a large sample of it."""
    found = np.clip(features(np.random.default_rng(5), (positions, atoms)), -CLAMP, CLAMP)
    rate = rates(found) if callable(rates) else np.broadcast_to(np.asarray(rates), found.shape)
    return Stream(found, np.asarray(rate, np.float64), np.full(found.shape, 1.0 / atoms))


def tempered(
    *temperatures: float, positions: int = 3, intercept: float = 0.3, atoms: int = 3000
) -> Stream:
    """A drafter with log-odds g at temperature 1: its feature is g / temperature, clamped.

    Greedy acceptance follows g whatever the temperature, as measured on SmolLM2-135M with an
    EAGLE head; upstream's step fails there at 0.1 and below.
    """
    rng = np.random.default_rng(5)
    g = rng.normal(1.0, 1.5, (positions, atoms))
    temperature = rng.choice(temperatures, size=g.shape)
    return Stream(
        np.clip(g / temperature, -CLAMP, CLAMP),
        sigmoid(0.65 * g + intercept),
        np.full(g.shape, 1.0 / atoms),
    )


class Upstream:
    """``OnlineAcceptanceEstimator`` of vLLM 0.32 and 0.33, in float64.

    tests/kernels/test_estimator.py compares it with the real one.
    """

    def __init__(self, settings: EstimatorSettings, positions: int) -> None:
        self.slope = float(settings.initial_slope)
        self.intercepts = np.array(settings.intercepts(positions))
        self.ridge, self.damping = settings.ridge, settings.damping

    def round(self, feature: Floats, label: Floats, labelled: NDArray[np.bool_]) -> None:
        p = sigmoid(self.slope * feature + self.intercepts)
        weight = np.where(labelled, p * (1.0 - p), 0.0)
        residual = np.where(labelled, label - p, 0.0)
        a = (weight * feature**2).sum() + self.ridge
        b = (weight * feature).sum(axis=0)
        c = weight.sum(axis=0) + self.ridge
        g0, g1 = (residual * feature).sum(), residual.sum(axis=0)
        n = labelled.sum(axis=0)
        with np.errstate(all="ignore"):
            step = (g0 - (b * g1 / c).sum()) / (a - (b * b / c).sum())
            step *= n.sum() / (n.sum() + self.damping)
            if not self.slope + step >= 0.0:
                step = 0.0
            steps = (g1 - b * step) / c * n / (n + self.damping)
        self.slope += step
        self.intercepts = self.intercepts + np.where(np.isnan(steps), 0.0, steps)


class Ours:
    """The reference, fed with whole rounds."""

    def __init__(self, settings: EstimatorSettings, positions: int) -> None:
        self.estimator = ReferenceEstimator(settings, 1, positions)

    @property
    def slope(self) -> float:
        return self.estimator.slope

    @property
    def intercepts(self) -> Floats:
        return self.estimator.intercepts

    def round(self, feature: Floats, label: Floats, labelled: NDArray[np.bool_]) -> None:
        score = self.slope * feature + self.intercepts
        self.estimator.learn(feature, score, label, labelled)
        self.estimator.refit()


def rounds(
    stream: Stream, labels: int, count: int, seed: int = 0
) -> Iterator[tuple[Floats, Floats, NDArray[np.bool_]]]:
    """Rounds of a stream, every row labelled."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        feature, label = stream.draw(rng, labels)
        yield feature, label, np.ones(label.shape, bool)


def learn(
    kind: Any, stream: Stream, labels: int, settings: EstimatorSettings, seed: int = 0
) -> tuple[float, float]:
    """Log-loss after five rounds, and the lower of the two to compare with.

    These are the start values, and constants: each position's acceptance rate in the very rows
    that were learnt from, with half a label of either kind (a rate of 0 or 1 may have no infinite
    loss).

    Returns:
        (loss, reference), nats per held-out row.
    """
    learner = kind(settings, stream.positions)
    start = stream.loss(learner.slope, learner.intercepts)
    accepted, seen = np.zeros(stream.positions), 0
    for feature, label, labelled in rounds(stream, labels, 5, seed):
        learner.round(feature, label, labelled)
        accepted, seen = accepted + label.sum(axis=0), seen + len(label)
    rate = (accepted + 0.5) / (seen + 1.0)
    constant = stream.loss(0.0, np.log(rate / (1.0 - rate)))
    return stream.loss(learner.slope, learner.intercepts), min(start, constant)
