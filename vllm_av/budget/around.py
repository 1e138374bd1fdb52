"""A policy around another one, and what vLLM calls a policy.

Rule: whatever a policy does not change is the inner one's, down to vLLM's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

Curve = list[tuple[int, float]]
"""Sizes, which ascend, and what each costs, in ms."""
Curves = tuple[Curve, Curve]
"""Of drafting, by requests, and of verifying, by tokens."""


class Policy(Protocol):
    """What vLLM calls a ``DraftBudgetPolicy``."""

    def choose(self, inputs: Any) -> int:
        """How many drafts to keep, of vLLM's ``DraftBudgetInputs``."""

    def assign(
        self,
        confidence_probs: torch.Tensor,
        idx_mapping: torch.Tensor,
        capacities: torch.Tensor,
        draft_budget: int,
    ) -> None:
        """Split the budget, in place of ``capacities``."""

    def load_cost_curves(self, capture_sizes: list[int]) -> Curves | None:
        """Costs that are known, so that none are profiled; else None."""

    def save_cost_curves(self, capture_sizes: list[int], curves: Curves) -> None:
        """What was profiled."""


class Around:
    """The inner policy in all that is not overridden.

    Args:
        inner: the policy.
    """

    def __init__(self, inner: Policy) -> None:
        self._inner = inner

    def choose(self, inputs: Any) -> int:
        """The inner policy's budget."""
        return self._inner.choose(inputs)

    def assign(
        self,
        confidence_probs: torch.Tensor,
        idx_mapping: torch.Tensor,
        capacities: torch.Tensor,
        draft_budget: int,
    ) -> None:
        """Split the budget as the inner policy does; nothing waits for the device."""
        self._inner.assign(confidence_probs, idx_mapping, capacities, draft_budget)

    def load_cost_curves(self, capture_sizes: list[int]) -> Curves | None:
        """What the inner policy knows."""
        return self._inner.load_cost_curves(capture_sizes)

    def save_cost_curves(self, capture_sizes: list[int], curves: Curves) -> None:
        """Tell the inner policy."""
        self._inner.save_cost_curves(capture_sizes, curves)
