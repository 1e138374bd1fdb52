"""Verifies some requests in full, whatever their survival says.

A draft position that is never verified is never labelled, and an estimate that is wrongly low stays
so: the drafts that would prove it wrong are the ones it drops. A small share of all requests' steps
is therefore verified to the last draft:

    credit <- credit + share * (requests with drafts);  floor(credit) of them are explored

in turn by their place in the batch. The budget grows by what as many requests lack on average, so
that the others keep about what they had. Which are explored depends on the scheduler's counts
alone, so the output keeps the target's distribution.

Rule: the scorer's confidences are read and never written; a copy says that the explored requests'
drafts are certain and everybody else's are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vllm_av.budget.around import Around, Policy

if TYPE_CHECKING:
    import torch

_trimmed_steps = 0

_BELOW_ONE = 1.0 - 2.0**-20
"""The most that anybody else's confidence may be while another request is explored."""


def trimmed_steps() -> int:
    """Steps of this process in which a draft that was scheduled was not verified."""
    return _trimmed_steps


class ExploringPolicy(Around):
    """A policy, and some requests verified in full.

    Args:
        inner: decides about all else.
        share: of all requests' steps, from 0 to 1; at 1 every draft is verified that has room.
    """

    def __init__(self, inner: Policy, share: float) -> None:
        super().__init__(inner)
        self._share = share
        self._credit = 0.0
        # A split before the first step is the warm-up's: it explores if ever a step will.
        self._requests = self._explored = int(share > 0.0)
        self._turn = -self._explored

    def choose(self, inputs: Any) -> int:
        """The inner policy's budget, and room for the requests that are explored in this step."""
        budget = self._inner.choose(inputs)
        drafts = inputs.scheduled_drafts
        self._turn += self._explored
        self._requests = int(np.count_nonzero(drafts))
        self._credit += self._share * self._requests
        self._explored = int(self._credit)
        self._credit -= self._explored
        scheduled = int(drafts.sum())
        if self._explored:
            lacking = -(-self._explored * (scheduled - budget) // self._requests)
            # Whatever the budget: one request at least has all of its drafts.
            budget = max(budget + lacking, int(drafts.max()))
            budget = min(budget, int(inputs.max_draft_budget))
        global _trimmed_steps
        _trimmed_steps += budget < scheduled
        return budget

    def assign(
        self,
        confidence_probs: torch.Tensor,
        idx_mapping: torch.Tensor,
        capacities: torch.Tensor,
        draft_budget: int,
    ) -> None:
        """Split the budget; see vLLM's ``DraftBudgetPolicy``. Nothing waits for the device."""
        if self._explored:
            drafting = capacities > 0
            place = drafting.cumsum(0) - 1 - self._turn % self._requests
            explored = drafting & (place % self._requests < self._explored)
            rows = confidence_probs[idx_mapping].nan_to_num(1.0, 1.0, 1.0)
            rows = rows.clamp(max=_BELOW_ONE).masked_fill(explored[:, None], 1.0)
            confidence_probs = confidence_probs.clone()
            confidence_probs[idx_mapping] = rows
        self._inner.assign(confidence_probs, idx_mapping, capacities, draft_budget)
