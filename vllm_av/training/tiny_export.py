"""The small target as a checkpoint that vLLM and transformers load.

Rule: its config says ``qwen2``, which is what transformers knows, and vLLM's own architecture.
"""

from pathlib import Path

import torch
from torch import nn

from vllm_av.training.tiny_model import TinyModel
from vllm_av.training.tiny_tokenizer import END_ID
from vllm_av.training.whole import write_json, write_tensors


def save(model: TinyModel, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write config and weights into the existing ``folder``."""
    names = {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "qwen2",
        "num_nextn_predict_layers": len(model.model.mtp_layers),
    }
    tokens = {"tie_word_embeddings": True, "bos_token_id": END_ID, "eos_token_id": END_ID}
    write(folder, names | model.shape.config() | tokens, model, dtype)


def write(folder: Path, config: dict[str, object], model: nn.Module, dtype: torch.dtype) -> None:
    """``config`` with the type's name, and the weights in that type."""
    name = str(dtype).removeprefix("torch.")
    write_json(folder / "config.json", config | {"dtype": name, "torch_dtype": name})
    weights = {
        key: value.detach().to(dtype).contiguous() for key, value in model.state_dict().items()
    }
    write_tensors(folder / "model.safetensors", weights)
