"""From what the engine said of a step to the rows of a trace.

Rule: a row is a draft token of the request that holds the slot *now*, whether the target saw it or
not; what an earlier request left in the slot is none, and neither is what was drafted during a
prompt, since the engine throws it away.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.scorers.target_only import told

SLOT_COLUMNS = (
    "log_odds", "log_odds_scaled", "entropy", "entropy_scaled", "margin", "margin_scaled",
    "log_q_drawn", "temperature", "confidence", "head",
)  # fmt: skip
"""What is kept of a draft until it is graded, float32 each; no temperature means no draft."""
SLOT, SAMPLED, REJECTED, TARGET_ONLY = range(4)
"""Columns of what the engine says of a request: int32 each; the last one is the bits of
:mod:`vllm_av.scorers.target_only`."""


class Grades:
    """Turns steps into blocks of rows, and numbers the requests in them.

    Args:
        max_num_reqs: request slots.

    Attributes:
        words: of ``masked`` and ``workload``, lists that grow.
        drafts: request-steps that became rows.
    """

    def __init__(self, max_num_reqs: int) -> None:
        # A request that was added; its number in the trace once it has rows, else -1.
        self._added = np.zeros(max_num_reqs, np.int64)
        self._numbers: dict[int, int] = {}
        self._sampled: set[int] = set()
        self._next_added = self._next_number = self._step = self.drafts = 0
        self._workloads = np.full(max_num_reqs, -1, np.int32)
        self._masks: dict[int, int] = {0: -1}
        self.words: dict[str, list[str]] = {"masked": [], "workload": []}

    def add_request(self, slot: int, workload: str | None = None) -> None:
        """A new request has taken ``slot``."""
        self._next_added += 1
        self._added[slot] = self._next_added
        self._workloads[slot] = self._word("workload", workload)

    def now(self) -> NDArray[np.int64]:
        """Who holds which slot, and its workload: ``[2, max_num_reqs]``, for :meth:`rows`."""
        return np.stack([self._added, self._workloads.astype(np.int64)])

    def rows(
        self, drafts: NDArray[Any], said: NDArray[Any], holders: NDArray[np.int64]
    ) -> dict[str, NDArray[Any]]:
        """The rows of one decode step.

        Args:
            drafts: float32 ``[n, K, 10]``, :data:`SLOT_COLUMNS` of each request's drafts.
            said: int32 ``[n, 4]``: slot, num_sampled, num_rejected, bits of what only the target
                applies.
            holders: what :meth:`now` said when the engine said that.
        """
        self._step += 1
        sampled = said[:, SAMPLED] > 0
        held = holders[0][said[:, SLOT]]
        # A request's first token ends its prompt: there were no drafts of its own before.
        drafted = sampled & np.fromiter((who in self._sampled for who in held), bool, len(held))
        self._sampled.update(held[sampled].tolist())
        self._forget(holders[0])
        drafts, said, held = drafts[drafted], said[drafted], held[drafted]
        workloads = holders[1][said[:, SLOT]]
        n, positions, _ = drafts.shape
        position = np.arange(positions)
        there = np.isfinite(drafts[:, :, SLOT_COLUMNS.index("temperature")])
        there = np.logical_and.accumulate(there, axis=1)
        accepted = position < (said[:, SAMPLED] - 1)[:, None]
        verified = position < (said[:, SAMPLED] - 1 + said[:, REJECTED])[:, None]
        numbers = [self._number(int(who)) for who in held[there[:, 0]]]
        number = np.zeros(n, np.int64)
        number[there[:, 0]] = numbers
        self.drafts += len(numbers)
        masks = np.array([self._mask(int(bits)) for bits in said[:, TARGET_ONLY]], np.int32)
        block = {
            "step": np.full(int(there.sum()), self._step),
            "request": _each(number, there),
            "position": np.broadcast_to(position, there.shape)[there],
            "verified": verified[there],
            "accepted": (accepted & verified)[there],
            "masked": _each(masks, there),
            "workload": _each(workloads, there),
        }
        return block | {name: drafts[:, :, i][there] for i, name in enumerate(SLOT_COLUMNS)}

    def _number(self, held: int) -> int:
        if held not in self._numbers:
            self._numbers[held] = self._next_number
            self._next_number += 1
        return self._numbers[held]

    def _forget(self, holding: NDArray[np.int64]) -> None:
        """Keep the books of those alone that hold a slot; each request comes once."""
        if len(self._sampled) > 2 * len(holding):
            alive = set(holding.tolist())
            self._sampled &= alive
            self._numbers = {who: n for who, n in self._numbers.items() if who in alive}

    def _mask(self, bits: int) -> int:
        if bits not in self._masks:
            self._masks[bits] = self._word("masked", told(bits))
        return self._masks[bits]

    def _word(self, column: str, word: str | None) -> int:
        known = self.words[column]
        if word is None:
            return -1
        if word not in known:
            known.append(word)
        return known.index(word)


def _each(values: NDArray[Any], there: NDArray[np.bool_]) -> NDArray[Any]:
    """[n] spread over the rows that are ``there``, [n, K]."""
    return np.broadcast_to(values[:, None], there.shape)[there]
