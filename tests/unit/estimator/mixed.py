"""Drafts of mixed traffic whose law is known, and ways to hand them to the estimator for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.unit.estimator.streams import CLAMP, softplus
from vllm_av.estimator.formula import Floats, sigmoid
from vllm_av.estimator.settings import MIXED, EstimatorSettings
from vllm_av.estimator.tempered.formula import design, features, places
from vllm_av.estimator.tempered.reference import TemperedReference

Generator = np.random.Generator
Law = Callable[["Drafts"], Floats]
TEMPERATURES = (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 1.0, 1.3)


@dataclass(frozen=True)
class Drafts:
    """Rows with labels; all [n].

    Attributes:
        log_odds, margin, temperature, position: as in a trace.
        before: mean log-odds of the earlier drafts of the block.
        rate: how often such a draft is accepted.
        label: whether this one was.
    """

    log_odds: Floats
    margin: Floats
    before: Floats
    temperature: Floats
    position: NDArray[np.int64]
    rate: Floats
    label: Floats

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, which: Any) -> "Drafts":
        return Drafts(*(getattr(self, field.name)[which] for field in fields(self)))

    def design(self, positions: int) -> Floats:
        """[n, 5 J + K]"""
        found = features(self.log_odds, self.margin, self.before)
        return design(found, places(self.temperature), self.position, positions)

    def steps(self, labels: int) -> Iterator["Drafts"]:
        """Decode steps with so many labels each."""
        for begin in range(0, len(self), labels):
            yield self[begin : begin + labels]


def loss_of(score: Floats, drafts: Drafts) -> float:
    """Expected log-loss, nats a label."""
    return float((softplus(score) - drafts.rate * score).mean())


def best_loss(drafts: Drafts) -> float:
    """Of who knows the law."""
    rate = np.clip(drafts.rate, 1e-300, 1.0 - 1e-16)
    return float(-(rate * np.log(rate) + (1.0 - rate) * np.log1p(-rate)).mean())


def drawn(
    rng: Generator,
    count: int,
    law: Law,
    positions: int = 3,
    temperatures: tuple[float, ...] = TEMPERATURES,
    mean: float = 1.5,
    spread: float = 2.0,
) -> Drafts:
    """Independent rows. The margin of a draft is some nats more than its log-odds, which are those
    of the best against all others together."""
    log_odds = np.clip(rng.normal(mean, spread, count), -CLAMP, CLAMP)
    margin = np.clip(np.maximum(log_odds, 0.0) + rng.exponential(1.0, count), 0.0, CLAMP)
    position = rng.integers(0, positions, count)
    before = np.where(position > 0, np.clip(rng.normal(mean, spread / 2, count), -8.0, 8.0), 0.0)
    zeros = np.zeros(count)
    rows = Drafts(log_odds, margin, before, rng.choice(temperatures, count), position, zeros, zeros)
    rate = sigmoid(law(rows))
    label = (rng.random(count) < rate).astype(np.float64)
    return Drafts(log_odds, margin, before, rows.temperature, position, rate, label)


def falling(drafts: Drafts) -> Floats:
    """A law as real pairs have it: the slope falls as the temperature rises, the margin counts
    where it is low, blocks that began well go on well, later positions are accepted less."""
    cold = np.clip(1.0 - drafts.temperature, 0.0, 1.0)
    score = (0.2 + 0.4 * cold) * drafts.log_odds + 0.6 * cold * (np.log1p(drafts.margin) - 1.0)
    return np.asarray(score + 0.15 * drafts.before + 0.3 - 0.3 * drafts.position)


class Mixed:
    """The reference, fed with rows.

    Args:
        settings: of the estimator.
        positions: K.
    """

    def __init__(self, settings: EstimatorSettings = MIXED, positions: int = 3) -> None:
        self.estimator = TemperedReference(settings, 1, positions)

    def score(self, drafts: Drafts) -> Floats:
        return self.estimator.score(
            drafts.log_odds, drafts.margin, drafts.before, drafts.temperature, drafts.position
        )

    def step(self, drafts: Drafts) -> None:
        """One decode step."""
        self.estimator.learn(
            drafts.log_odds,
            drafts.margin,
            drafts.before,
            places(drafts.temperature),
            drafts.position,
            drafts.label > 0,
            self.score(drafts),
        )
        self.estimator.pass_steps(1)

    def learn(self, drafts: Drafts, labels: int = 64) -> "Mixed":
        for step in drafts.steps(labels):
            self.step(step)
            assert np.isfinite(self.estimator.coefficients).all()
        return self

    def loss(self, drafts: Drafts) -> float:
        return loss_of(self.score(drafts), drafts)


def newton(x: Floats, label: Floats, ridge: float = 1e-6) -> Floats:
    """Coefficients of least log-loss, by plain Newton steps, halved where they overshoot."""

    def loss(t: Floats) -> float:
        z = x @ t
        return float((softplus(z) - label * z).sum() + 0.5 * ridge * t @ t)

    t = np.zeros(x.shape[1])
    for _ in range(60):
        p = sigmoid(x @ t)
        weight = p * (1.0 - p)
        hessian = (x * weight[:, None]).T @ x + ridge * np.eye(len(t))
        step = np.linalg.solve(hessian, x.T @ (label - p) - ridge * t)
        while loss(t + step) > loss(t) + 1e-9:
            step = step / 2.0
        t = t + step
        if np.abs(step).max() < 1e-9:
            break
    return t
