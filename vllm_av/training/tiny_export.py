"""The small target as a checkpoint that vLLM and transformers load.

Rule: its config says ``qwen2``, which is what transformers knows, and vLLM's own architecture.
"""

from pathlib import Path

import torch

from vllm_av.training.tiny_model import TinyModel
from vllm_av.training.tiny_tokenizer import END_ID
from vllm_av.training.whole import write_json, write_tensors


def save(model: TinyModel, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write config and weights into the existing ``folder``."""
    shape = model.shape
    name = str(dtype).removeprefix("torch.")
    config = {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "qwen2",
        "num_nextn_predict_layers": len(model.model.mtp_layers),
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.positions,
        "rope_theta": shape.theta,
        "rms_norm_eps": shape.epsilon,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": END_ID,
        "eos_token_id": END_ID,
        "dtype": name,
        "torch_dtype": name,
    }
    write_json(folder / "config.json", config)
    weights = {
        key: value.detach().to(dtype).contiguous() for key, value in model.state_dict().items()
    }
    write_tensors(folder / "model.safetensors", weights)
