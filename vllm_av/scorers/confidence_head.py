"""The scorer that the drafter was trained with, as DSpark's checkpoints have one.

The head computes ``sigmoid(w . [hidden_i, embed(token_{i-1})] + b)``: it reads the token before
the position that it scores, never the token at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_av.scorers.base import Scorer, ScorerContext

if TYPE_CHECKING:
    import torch


class ConfidenceHead(Scorer):
    """The confidence head that was trained with the drafter and lies in its checkpoint."""

    needs_confidence_head = True

    def __init__(self, context: ScorerContext) -> None:
        assert context.confidence_head is not None
        self._head = context.confidence_head

    def predict_block(
        self, hidden_states: torch.Tensor, markov_embeds: torch.Tensor, out: torch.Tensor
    ) -> None:
        out.copy_(self._head(hidden_states, markov_embeds).view(out.shape))
