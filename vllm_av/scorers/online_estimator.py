"""The acceptance estimator that learns while it serves (:mod:`vllm_av.estimator`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_av.scorers.base import Scorer, ScorerContext

if TYPE_CHECKING:
    import torch


class OnlineEstimatorScorer(Scorer):
    """Log-odds of the drafter's top token, fitted to what the target accepts while it serves."""

    needs_draft_logits = True

    def __init__(self, context: ScorerContext) -> None:
        from vllm_av.estimator.online import OnlineEstimator

        self.estimator = OnlineEstimator(
            context.config.estimator.settings(),
            context.max_num_reqs,
            context.num_speculative_steps,
            context.device,
        )

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
        drawn_tokens: torch.Tensor | None = None,
    ) -> None:
        self.estimator.predict(logits, idx_mapping, draft_step, temperature, out)

    def observe(
        self,
        idx_mapping: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> None:
        self.estimator.observe(idx_mapping, num_sampled, num_rejected, mask)

    def snapshot(self) -> dict[str, torch.Tensor]:
        return self.estimator.snapshot()
