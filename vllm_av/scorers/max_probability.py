"""The drafter's own top probability, taken at its word: the way of EAGLE-2's draft trees.

    p_i = max_x softmax(logits_i / temperature)(x)

It is the probability of the likeliest token, whichever was drawn, and so prefix-measurable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_av.scorers.base import Scorer, ScorerContext

if TYPE_CHECKING:
    import torch


class MaxProbability(Scorer):
    """The drafter's own top probability after temperature, without any fit."""

    needs_draft_logits = True

    def __init__(self, context: ScorerContext) -> None:
        from vllm_av.estimator.online import score_top_probability

        self._score = score_top_probability

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
        drawn_tokens: torch.Tensor | None = None,
    ) -> None:
        self._score(logits, idx_mapping, draft_step, temperature, out)
