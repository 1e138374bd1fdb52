"""What a user can set of the online acceptance estimators.

``EstimatorSettings()`` has the constants of vLLM's ``OnlineAcceptanceEstimator`` (v1/worker/gpu/
spec_decode/acceptance_estimator.py, the same in 0.31, 0.32 and 0.33; vLLM pull request 52228),
which the pooled estimator takes for its defaults; ``MIXED`` has those of the estimator for mixed
traffic.

Rule: no torch here, the config's models read it. Nothing is validated here.
"""

from dataclasses import dataclass

LOG_ODDS_CLAMP = 40.0
"""A row with all of its mass on one token has infinite log-odds; vLLM's clamp."""


@dataclass(frozen=True, slots=True)
class EstimatorSettings:
    """Settings of one estimator.

    Attributes:
        refit_interval: decode steps from refit to refit (a round); vLLM: 100. Of the estimator for
            mixed traffic, in the long run.
        damping: labels at which a step is half of the full one, n / (n + damping); vLLM: 50. For
            mixed traffic: labels that the start values are worth.
        ridge: added to the diagonal of the normal equations; vLLM: 1e-3. Pooled only.
        initial_slope: of the log-odds at start; vLLM: 0.5, the median of five online fits (the
            five pairs of a target and its drafter in pull request 52228).
        initial_intercepts: at start, one number or one per draft position; vLLM: -0.2, likewise.
        log_odds_clamp: the feature lies within plus and minus this; vLLM: 40.
        memory: labels of a coefficient after which an older one counts e times less. For mixed
            traffic only.
    """

    refit_interval: int = 100
    damping: float = 50.0
    ridge: float = 1e-3
    initial_slope: float = 0.5
    initial_intercepts: float | tuple[float, ...] = -0.2
    log_odds_clamp: float = LOG_ODDS_CLAMP
    memory: float = 2000.0

    def intercepts(self, num_speculative_steps: int) -> tuple[float, ...]:
        """One initial intercept per draft position."""
        given = self.initial_intercepts
        if isinstance(given, tuple):
            if len(given) != num_speculative_steps:
                raise ValueError(
                    f"{len(given)} initial intercepts for {num_speculative_steps} draft positions"
                )
            return given
        return (float(given),) * num_speculative_steps


MIXED = EstimatorSettings(refit_interval=20, damping=60.0)
"""Measured as :mod:`vllm_av.estimator.tempered.rules` says. damping: from 40 to 120 the log-loss is
the same within 0.1%; from a wrong start, one request in flight, 100 leaves a fifth more of the
excess after 200 steps. memory: where traffic stands still 6,000 is 0.07% better and 1,000 is 0.12%
worse; what is forgotten later follows a jump later."""
