"""What a user can set: the block ``adaptive_verification_config`` of a ``--speculative-config``.

Rule: nothing here imports vllm or torch, so that a config can be checked on any machine.
"""

from vllm_av.config.block import BLOCK, Facts, Verdict, canonical, examine_block, parse_block
from vllm_av.config.model import AdaptiveVerificationConfig, BudgetConfig, EstimatorConfig

__all__ = [
    "BLOCK",
    "AdaptiveVerificationConfig",
    "BudgetConfig",
    "EstimatorConfig",
    "Facts",
    "Verdict",
    "canonical",
    "examine_block",
    "parse_block",
]
