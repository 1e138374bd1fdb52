"""The acceptance estimators that learn while they serve (:mod:`vllm_av.estimator`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from vllm_av.scorers.base import Scorer, ScorerContext

if TYPE_CHECKING:
    import torch

    from vllm_av.estimator.settings import EstimatorSettings


class Estimator(Protocol):
    """What a scorer of either kind asks of its estimator, as :class:`Scorer` has it."""

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
    ) -> None: ...

    def observe(
        self,
        idx_mapping: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> None: ...

    def warm_up(
        self, idx_mapping: torch.Tensor, num_sampled: torch.Tensor, num_rejected: torch.Tensor
    ) -> None: ...

    def add_request(self, slot: int) -> None: ...

    def snapshot(self) -> dict[str, torch.Tensor]: ...

    @property
    def state_kind(self) -> str: ...

    def state_tensors(self) -> dict[str, torch.Tensor]: ...

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None: ...


class EstimatorScorer(Scorer):
    """What both have in common."""

    needs_draft_logits = True
    estimator: Estimator

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

    def warm_up(
        self, idx_mapping: torch.Tensor, num_sampled: torch.Tensor, num_rejected: torch.Tensor
    ) -> None:
        self.estimator.warm_up(idx_mapping, num_sampled, num_rejected)

    def add_request(self, slot: int) -> None:
        self.estimator.add_request(slot)

    def snapshot(self) -> dict[str, torch.Tensor]:
        return self.estimator.snapshot()

    @property
    def state_kind(self) -> str:
        return self.estimator.state_kind

    def state_tensors(self) -> dict[str, torch.Tensor]:
        return self.estimator.state_tensors()

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        self.estimator.load_state(tensors)


def settings_of(context: ScorerContext, name: str) -> EstimatorSettings:
    """The numbers in force for the scorer ``name``."""
    return context.config.estimator.settings(name, context.start)


class OnlineEstimatorScorer(EstimatorScorer):
    """The drafter's certainty, fitted to what the target accepts, by temperature, while serving."""

    def __init__(self, context: ScorerContext) -> None:
        from vllm_av.estimator.tempered.online import TemperedEstimator

        self.estimator = TemperedEstimator(
            settings_of(context, "online_estimator"),
            context.max_num_reqs,
            context.num_speculative_steps,
            context.device,
        )
