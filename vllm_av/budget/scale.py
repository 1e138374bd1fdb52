"""Scales what verifying more tokens is taken to cost.

The profile prices a step by its size alone. Where that is known to be off - rows that attend over
other lengths than the profiled ones, experts that are routed otherwise - a factor mends it. With C0
the cost of verifying the step without drafts:

    C'(t) = C0 + scale * (C(t) - C0)

A larger step that was measured to be cheaper than C0 is not made cheaper still by a scale above 1:
it would end below nothing.

Rule: the tables are the manager's and are not written.
"""

from dataclasses import replace
from typing import Any

import numpy as np

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
        more = costs[first:] - costs[first]
        costs[first:] = costs[first] + np.where(
            more > 0, self._scale * more, min(self._scale, 1.0) * more
        )
        return self._inner.choose(replace(inputs, verify_cost_ms=costs))
