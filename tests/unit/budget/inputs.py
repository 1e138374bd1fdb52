"""What vLLM gives a policy, its own decision, and one that compares every budget with every other.

vLLM is not imported here; ``tests/engine/test_known_costs.py`` compares the copy with vLLM's own.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Inputs:
    """The fields of vLLM's ``DraftBudgetInputs``."""

    confidences: NDArray[np.float32]
    scheduled_drafts: NDArray[np.int32]
    num_non_draft_tokens: int
    num_sampling_requests: int
    max_draft_budget: int
    draft_cost_ms: float
    verify_cost_ms: NDArray[np.float64]


class Greedy:
    """vLLM's own policy, as far as it chooses; it keeps what it was shown."""

    shown: Inputs

    def choose(self, inputs: Inputs) -> int:
        self.shown = inputs
        survival = np.cumprod(inputs.confidences.astype(np.float64), axis=1)
        valid = np.arange(survival.shape[1]) < inputs.scheduled_drafts[:, None]
        scores = np.sort(survival[valid])[::-1][: inputs.max_draft_budget]
        tokens = np.concatenate(([0.0], scores)).cumsum() + inputs.num_sampling_requests
        first = inputs.num_non_draft_tokens
        costs = inputs.verify_cost_ms[first : first + len(tokens)]
        return int(np.argmax(tokens / (inputs.draft_cost_ms + costs)))

    def assign(self, *_: Any) -> None:
        raise NotImplementedError

    def load_cost_curves(self, capture_sizes: list[int]) -> Any:
        return ("loaded", capture_sizes)

    def save_cost_curves(self, capture_sizes: list[int], curves: Any) -> None:
        self.saved = (capture_sizes, curves)


def rates(inputs: Inputs, scale: float = 1.0) -> list[float]:
    """Predicted tokens per ms of every budget, one after the other."""
    survivals = []
    for confidences, drafts in zip(inputs.confidences, inputs.scheduled_drafts, strict=True):
        survival = 1.0
        for confidence in confidences[:drafts]:
            survival *= float(confidence)
            survivals.append(survival)
    survivals.sort(reverse=True)
    base = float(inputs.verify_cost_ms[inputs.num_non_draft_tokens])
    found = []
    for budget in range(inputs.max_draft_budget + 1):
        more = float(inputs.verify_cost_ms[inputs.num_non_draft_tokens + budget]) - base
        cost = base + scale * more
        tokens = inputs.num_sampling_requests + sum(survivals[:budget])
        found.append(tokens / (inputs.draft_cost_ms + cost))
    return found


def guarded(inputs: Inputs, gain: float, scale: float = 1.0) -> set[int]:
    """The budgets that are right: several where they differ by less than rounding does."""
    every = rates(inputs, scale)
    best, full = max(every), len(every) - 1
    close = 1e-9 * best
    found = {budget for budget, rate in enumerate(every) if rate >= best - close}
    if abs(best - (1 + gain) * every[full]) <= 4 * close:
        return found | {full}
    return found if best > (1 + gain) * every[full] else {full}


def random_inputs(rng: np.random.Generator) -> Inputs:
    """A step of up to 12 requests, with or without a cap, whose costs may stand still."""
    requests, steps = int(rng.integers(1, 13)), int(rng.integers(1, 8))
    drafts = rng.integers(0, steps + 1, requests).astype(np.int32)
    if rng.random() < 0.1:
        drafts[:] = 0
    scheduled = int(drafts.sum())
    cap = scheduled if rng.random() < 0.7 else int(rng.integers(0, scheduled + 1))
    prompts = int(rng.integers(0, 20))
    non_draft = requests + prompts
    table = np.cumsum(rng.exponential(rng.choice([0.001, 0.05, 1.0]), non_draft + scheduled + 9))
    if rng.random() < 0.5:
        table = np.repeat(table, 8)[: len(table)]  # as graphs pad
    confidences = rng.random((requests, steps)).astype(np.float32) ** rng.choice([0.2, 1.0, 4.0])
    return Inputs(
        confidences=confidences.astype(np.float32),
        scheduled_drafts=drafts,
        num_non_draft_tokens=non_draft,
        num_sampling_requests=int(rng.integers(1, requests + 1)),
        max_draft_budget=cap,
        draft_cost_ms=float(rng.choice([0.0, 0.3, 5.0])),
        verify_cost_ms=table + 1e-6,
    )
