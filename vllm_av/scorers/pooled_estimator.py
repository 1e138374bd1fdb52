"""vLLM's own estimator with a safe step: one slope for all traffic, after temperature."""

from __future__ import annotations

from vllm_av.scorers.base import ScorerContext
from vllm_av.scorers.online_estimator import EstimatorScorer, settings_of


class PooledEstimatorScorer(EstimatorScorer):
    """vLLM's estimator, with a safe step: log-odds after temperature, one slope for all traffic."""

    def __init__(self, context: ScorerContext) -> None:
        from vllm_av.estimator.online import OnlineEstimator

        self.estimator = OnlineEstimator(
            settings_of(context, "pooled_estimator"),
            context.max_num_reqs,
            context.num_speculative_steps,
            context.device,
        )
