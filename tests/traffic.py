"""Decode steps for an estimator on a device and for its NumPy reference, the same for both.

Rule: torch and NumPy only, for tests/gpu too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Integers = NDArray[np.int32]
TEMPERATURES = (0.0, 0.01, 0.1, 0.3, 0.45, 0.7, 1.0, 1.3, 2.0, 3.0)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Step:
    """One decode step.

    Attributes:
        logits: [rows, K, vocab], on the CPU.
        mapping: [rows], slots, -1 for padding.
        temperature: [slots].
        sampled, rejected: [rows].
        mask: [rows], who may teach; None: all.
    """

    logits: torch.Tensor
    mapping: Integers
    temperature: NDArray[np.float32]
    sampled: Integers
    rejected: Integers
    mask: NDArray[np.bool_] | None

    def part(self, rows: Any) -> "Step":
        """Some of the rows, in any order."""
        return replace(
            self,
            logits=self.logits[rows],
            mapping=self.mapping[rows],
            sampled=self.sampled[rows],
            rejected=self.rejected[rows],
            mask=None if self.mask is None else self.mask[rows],
        )


def odd_rows(logits: torch.Tensor, rng: np.random.Generator) -> None:
    """Make a tenth of the rows [rows, vocab] what a drafter should not give, and sometimes does."""
    vocab = logits.shape[1]
    for row in np.flatnonzero(rng.random(len(logits)) < 0.1):
        kind, at = rng.integers(9), rng.integers(vocab)
        if kind < 3:
            logits[row, at] = (math.nan, math.inf, 1e4)[kind]
        elif kind < 6:
            logits[row] = (-math.inf, 1.5, -1e4)[kind - 3]
        elif kind == 6:
            logits[row, [0, vocab - 1]] = 50.0
        else:  # all but one token, or half of them
            logits[row, : vocab if kind == 7 else vocab // 2] = -math.inf
            logits[row, at] = 3.0


def traffic(
    steps: int,
    *,
    slots: int,
    positions: int,
    vocab: int,
    temperatures: tuple[float, ...] = TEMPERATURES,
    dtype: torch.dtype = torch.float32,
    odd: bool = False,
    seed: int = 0,
) -> Iterator[Step]:
    """Requests that come and go, and a target that accepts by the drafter's certainty and the
    temperature. Half of the steps are without a mask."""
    rng = np.random.default_rng(seed)
    temperature = rng.choice(temperatures, slots).astype(np.float32)
    for number in range(steps):
        temperature[rng.integers(slots)] = rng.choice(temperatures)
        mapping = rng.permutation(slots).astype(np.int32)
        mapping[rng.random(slots) < 0.2] = -1
        logits = rng.standard_normal((slots, positions, vocab), np.float32) * 2
        top = rng.integers(0, vocab, (slots, positions, 1))
        lift = rng.uniform(0, 12, top.shape).astype(np.float32)
        np.put_along_axis(logits, top, np.take_along_axis(logits, top, 2) + lift, 2)
        given = torch.from_numpy(logits).to(dtype)
        rate = 1 / (1 + np.exp(0.5 - lift[..., 0] * (0.5 - 0.1 * temperature[mapping][:, None])))
        accepted = rng.random(rate.shape) < rate
        if odd:
            odd_rows(given.view(-1, vocab), rng)
        verified = rng.integers(0, positions + 1, slots)
        run = np.minimum(np.logical_and.accumulate(accepted, axis=1).sum(axis=1), verified)
        yield Step(
            given,
            mapping,
            temperature.copy(),
            (run + 1).astype(np.int32),
            (verified - run).astype(np.int32),
            rng.random(slots) < 0.8 if number % 2 else None,
        )


def predict(estimator: Any, step: Step, out: torch.Tensor, *, block: bool = False) -> None:
    """Score a step on the estimator's device, position by position or a whole block at once."""
    to = out.device
    mapping, temperature = (torch.from_numpy(a).to(to) for a in (step.mapping, step.temperature))
    logits = step.logits.to(to)
    rows, positions, vocab = logits.shape
    if block:
        steps = torch.arange(positions, device=to).repeat(rows)
        each = mapping.repeat_interleave(positions)
        estimator.predict(logits.view(-1, vocab), each, steps, temperature, out)
        return
    for k in range(positions):
        # Rows K vocabularies apart.
        estimator.predict(logits[:, k], mapping, torch.tensor(k, device=to), temperature, out)


def observe(estimator: Any, step: Step, to: torch.device = CPU) -> None:
    arrays = (step.mapping, step.sampled, step.rejected, step.mask)
    estimator.observe(*(None if a is None else torch.from_numpy(a).to(to) for a in arrays))


def predict_reference(reference: Any, step: Step, out: NDArray[Any]) -> None:
    logits = step.logits.double().numpy()
    for k in range(logits.shape[1]):
        reference.predict(logits[:, k], step.mapping, np.array(k), step.temperature, out)


def observe_reference(reference: Any, step: Step) -> None:
    reference.observe(step.mapping, step.sampled, step.rejected, step.mask)


def run(estimator: Any, steps: Any, out: torch.Tensor, *, block: bool = False) -> list[np.ndarray]:
    """The probabilities after each step."""
    outs = []
    for step in steps:
        predict(estimator, step, out, block=block)
        observe(estimator, step, out.device)
        outs.append(out.cpu().numpy().copy())
    return outs


def coefficients(estimator: Any) -> NDArray[np.float32]:
    """Of the estimator for mixed traffic, laid out as the reference's."""
    both = (estimator.by_knot.flatten(), estimator.intercepts)
    return np.asarray(torch.cat(both).cpu().numpy())


def state(estimator: Any) -> dict[str, bytes]:
    """Every bit of what it has learnt."""
    return {
        name: value.cpu().numpy().tobytes() for name, value in estimator.state_tensors().items()
    }
