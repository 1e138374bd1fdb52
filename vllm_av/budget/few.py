"""Verifies everything while there are few requests.

Rule: what counts is the scheduler's, the same on every rank: requests that have drafts.
"""

from typing import Any

import numpy as np

from vllm_av.budget.around import Around, Policy


class FewRequests(Around):
    """A policy that is asked only from so many requests on.

    Args:
        inner: decides about all other steps.
        least: requests with drafts.
    """

    def __init__(self, inner: Policy, least: int) -> None:
        super().__init__(inner)
        self._least = least

    def choose(self, inputs: Any) -> int:
        """All drafts that there is room for, or the inner policy's budget."""
        if np.count_nonzero(inputs.scheduled_drafts) < self._least:
            return int(inputs.max_draft_budget)
        return self._inner.choose(inputs)
