"""Leaves drafts out only where enough is predicted to be gained by it.

With few requests a step costs about the same however many drafts it verifies, so that vLLM's own
decision trims for gains that are smaller than the trimming's own price and than the errors of what
it is decided from. With T(B) the tokens and C(B) the time that are predicted at a budget of B
drafts, B* vLLM's choice and F all drafts that there is room for:

    B* where T(B*) / C(B*) >= (1 + gain) * T(F) / C(F),  else F

Dividing the cost of F by 1 + gain before vLLM compares gives exactly that, for the price of one
number: of all budgets below F the best one is still B*, and F wins where it is better than that.

Rule: the tables are the manager's and are not written; the decision follows from the inputs alone.
"""

from dataclasses import replace
from typing import Any

from vllm_av.budget.around import Around, Policy


class PredictedGain(Around):
    """A policy that trims only for a gain.

    Args:
        inner: takes the budget with the most predicted tokens per time.
        gain: the least that trimming must be predicted to yield, as a share; above 0.
    """

    def __init__(self, inner: Policy, gain: float) -> None:
        super().__init__(inner)
        self._favour = 1.0 + gain

    def choose(self, inputs: Any) -> int:
        """The inner policy's budget where it yields enough, else all that there is room for."""
        full = int(inputs.max_draft_budget)
        last = int(inputs.num_non_draft_tokens) + full
        costs = inputs.verify_cost_ms[: last + 1].copy()
        costs[last] = (inputs.draft_cost_ms + costs[last]) / self._favour - inputs.draft_cost_ms
        return self._inner.choose(replace(inputs, verify_cost_ms=costs))
