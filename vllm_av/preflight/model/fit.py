"""What a drafter reads out of its target: states of which layers, and how wide they are.

Rule: a width is told where vLLM's own code of the drafter says it, and 0 where it does not.
"""

from collections.abc import Collection

from vllm_av.preflight.model.fields import MOST_SIZE, Fields

_OF_LAYERS = ("eagle3", "dflash", "dspark")
_EAGLE3 = """
    Eagle3DeepseekV2ForCausalLM Eagle3DeepseekV3ForCausalLM Eagle3LlamaForCausalLM
    Eagle3MiniMaxM2ForCausalLM Eagle3Qwen2_5vlForCausalLM Eagle3Qwen3ForCausalLM
    Eagle3Qwen3vlForCausalLM LlamaForCausalLMEagle3
"""
_DFLASH = "DFlash2DraftModel DFlashDraftModel DFlashMuseGlimmerAssistantModel Qwen3DSparkModel"
"""Drafters whose ``fc`` takes ``target_hidden_size``, else ``hidden_size``, of each layer
(``llama_eagle3.py``, ``qwen3_eagle3.py``, ``deepseek_eagle3.py``, ``qwen3_dflash.py``)."""
_WIDE = "hc_mult"
"""A model whose states are several hidden states wide."""


def reads_layers(method: str, text: Fields) -> bool:
    """Whether it reads states of layers within the target: ``requires_aux_hidden_states``."""
    if method == "eagle3":
        own = text.get("eagle_config")
        return not isinstance(own, dict) or bool(own.get("use_aux_hidden_state", True))
    return method in _OF_LAYERS


def target_width(method: str, architectures: Collection[str], text: Fields) -> int:
    """The hidden size that the target must have; 0 where none is known.

    Raises:
        CheckError: a size is no size.
    """
    name = next(iter(architectures), "")
    if _WIDE in text:
        return 0
    if method == "eagle" or (method == "eagle3" and not reads_layers(method, text)):
        # ``self.hidden_states.copy_`` of its speculator, as wide as the draft.
        return text.count("hidden_size", most=MOST_SIZE, default=0)
    if name in _EAGLE3.split() or name in _DFLASH.split():
        return text.count("target_hidden_size", "hidden_size", most=MOST_SIZE, default=0)
    return 0


def width(text: Fields) -> int:
    """A target's hidden size; 0 where it is not said, or its states are wider."""
    if _WIDE in text:
        return 0
    return text.count("hidden_size", "n_embd", "d_model", most=MOST_SIZE, default=0)
