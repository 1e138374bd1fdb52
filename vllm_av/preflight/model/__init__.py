"""What a target and a drafter are, from their folders or from configs that vLLM has read."""

from vllm_av.preflight.model.draft import draft_from_config, read_draft
from vllm_av.preflight.model.target import read_target, target_from_config

__all__ = ["draft_from_config", "read_draft", "read_target", "target_from_config"]
