"""Gemma 4 and its assistant, whose layers read the target's keys and values."""

from pathlib import Path
from typing import Any

import torch

from tests.engine.drafters.target import (
    GEOMETRY,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    NOISE,
    Pair,
    feed_forward,
    named,
    norms,
    random,
    save,
)

LAYERS = ["sliding_attention", "full_attention"]


def assistant(root: Path) -> Pair:
    from transformers import Gemma4ForCausalLM, Gemma4TextConfig

    torch.manual_seed(41)
    shape = GEOMETRY | {
        "num_hidden_layers": len(LAYERS),
        "layer_types": LAYERS,
        "sliding_window": 32,
        "global_head_dim": HEAD_DIM,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        "pad_token_id": None,
    }
    config = Gemma4TextConfig(initializer_range=NOISE, **shape)
    model = Gemma4ForCausalLM(config).float().eval()
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(std=0.25)  # times 8 in the model
        model.get_output_embeddings().weight.normal_(std=2.0 / HIDDEN**0.5)
    folder = root / "gemma4"
    model.save_pretrained(folder)
    return Pair(str(folder), _assistant(root / "gemma4-assistant", config, model))


def _assistant(folder: Path, target: Any, model: Any) -> str:
    weights = norms("model.norm")
    for number in range(len(LAYERS)):
        layer = {
            "self_attn.q_proj.weight": random(HEADS * HEAD_DIM, HIDDEN),
            "self_attn.o_proj.weight": random(HIDDEN, HEADS * HEAD_DIM),
            "self_attn.q_norm.weight": torch.ones(HEAD_DIM),
            "layer_scalar": torch.ones(1),
        }
        layer |= feed_forward() | norms(
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        )
        for name in ("attention", "feedforward"):  # less of the random layers
            layer[f"post_{name}_layernorm.weight"] *= 0.3
        weights |= named(f"model.layers.{number}.", layer)
    weights["model.embed_tokens.weight"] = model.get_input_embeddings().weight.detach()
    weights["lm_head.weight"] = model.get_output_embeddings().weight.detach()
    weights["pre_projection.weight"] = torch.cat(
        [torch.eye(HIDDEN), random(HIDDEN, HIDDEN, std=0.03)], dim=1
    )
    weights["post_projection.weight"] = torch.eye(HIDDEN)
    config = {
        "architectures": ["Gemma4AssistantForCausalLM"],
        "model_type": "gemma4_assistant",
        "backbone_hidden_size": HIDDEN,
        "tie_word_embeddings": False,
        "text_config": target.to_dict(),
        "torch_dtype": "float32",
    }
    return save(folder, config, weights)
