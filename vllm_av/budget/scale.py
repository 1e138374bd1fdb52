"""Scales what verifying more tokens is taken to cost.

The profile prices a step by its size alone. Where that is known to be off - rows that attend over
other lengths than the profiled ones, experts that are routed otherwise - a factor mends it. With C0
the cost of verifying the step without drafts:

    C'(t) = C0 + scale * (C(t) - C0)

vLLM's tables do not fall, so that no scaled cost is below C0.

Rule: the tables are the manager's and are not written.
"""

from dataclasses import replace
from typing import Any

from vllm_av.budget.around import Around, Policy


class CostScale(Around):
    """A policy that is shown scaled costs.

    Args:
        inner: decides by them.
        scale: the factor, at least 0.
    """

    def __init__(self, inner: Policy, scale: float) -> None:
        super().__init__(inner)
        self._scale = scale

    def choose(self, inputs: Any) -> int:
        """The inner policy's budget."""
        first = int(inputs.num_non_draft_tokens)
        costs = inputs.verify_cost_ms[: first + int(inputs.max_draft_budget) + 1].copy()
        costs[first:] = costs[first] + self._scale * (costs[first:] - costs[first])
        return self._inner.choose(replace(inputs, verify_cost_ms=costs))
