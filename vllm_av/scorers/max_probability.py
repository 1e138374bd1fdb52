"""The drafter's own top probability, taken at its word: the way of EAGLE-2's draft trees.

    p_i = max_x softmax(logits_i / temperature)(x)

It is the probability of the likeliest token, whichever was drawn, and so prefix-measurable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_av.scorers.base import Scorer

if TYPE_CHECKING:
    import torch


class MaxProbability(Scorer):
    """The drafter's own top probability after temperature, without any fit."""

    needs_draft_logits = True

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
        drawn_tokens: torch.Tensor | None = None,
    ) -> None:
        import torch

        slots = idx_mapping.long()
        rows = torch.arange(len(slots), device=slots.device)
        if draft_step.dim():
            rows = rows // out.shape[1]
        # Expanded, because an index that is a 0-d tensor is read back from the device.
        steps = draft_step.long().expand(len(slots))
        heat = temperature[slots.clamp(min=0)]
        heat = heat.where(heat > 0, 1.0)  # a greedy request drafts from its logits as they are
        scaled = logits.float() / heat[:, None]
        top = (scaled.amax(dim=-1) - scaled.logsumexp(dim=-1)).exp()
        out[rows, steps] = top.where(slots >= 0, out[rows, steps])
