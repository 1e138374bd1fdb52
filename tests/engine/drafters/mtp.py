"""Targets that draft for themselves: one layer for all drafts (MiMo), or one for each (EXAONE)."""

from pathlib import Path
from typing import Any

import torch

from tests.engine.drafters.target import (
    GEOMETRY,
    HIDDEN,
    NOISE,
    Pair,
    Weights,
    attention,
    feed_forward,
    named,
    norms,
    random,
    save,
    tell,
)

MODULES = 3


def one_module(root: Path) -> Pair:
    """MiMo: a Qwen2 with an MTP layer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(31)
    config = Qwen2Config(num_hidden_layers=2, initializer_range=NOISE, **GEOMETRY)
    model = Qwen2ForCausalLM(config).float().eval()
    tell(model)
    layer = attention() | {
        f"self_attn.{name}_proj.bias": torch.zeros(size)
        for name, size in (("q", HIDDEN), ("k", 32), ("v", 32))
    }
    layer |= feed_forward() | norms("input_layernorm", "post_attention_layernorm")
    layer |= norms("token_layernorm", "hidden_layernorm", "final_layernorm")
    layer["input_proj.weight"] = torch.cat(
        [random(HIDDEN, HIDDEN, std=0.03), torch.eye(HIDDEN)], dim=1
    )
    weights = named("model.mtp_layers.0.", layer)
    return _saved(root, config, "MiMoForCausalLM", 1, model, weights)


def many_modules(root: Path) -> Pair:
    """EXAONE, with all of its experts left out: a layer for each draft."""
    from transformers import ExaoneMoeConfig, ExaoneMoeForCausalLM

    torch.manual_seed(32)
    config = ExaoneMoeConfig(
        num_hidden_layers=MODULES,  # vLLM reads the kind of a module off the layer of its number
        initializer_range=NOISE,
        sliding_window=32,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        mlp_layer_types=["dense"] * MODULES,
        **GEOMETRY,
    )
    model = ExaoneMoeForCausalLM(config).float().eval()
    tell(model)
    weights = norms("mtp.norm", "mtp.pre_fc_norm_hidden", "mtp.pre_fc_norm_embedding")
    weights["mtp.fc.weight"] = torch.cat(
        [torch.eye(HIDDEN), random(HIDDEN, HIDDEN, std=0.03)], dim=1
    )
    for number in range(MODULES):
        layer = attention(norms=True) | feed_forward()
        layer |= norms("input_layernorm", "post_attention_layernorm")
        weights |= named(f"mtp.layers.{number}.", layer)
    return _saved(root, config, "ExaoneMoeForCausalLM", MODULES, model, weights)


def _saved(
    root: Path, config: Any, architecture: str, modules: int, model: Any, drafting: Weights
) -> Pair:
    whole = config.to_dict() | {
        "architectures": [architecture],
        "num_nextn_predict_layers": modules,
        "mtp_layer_types": ["full_attention"] * modules,
    }
    folder = save(root / architecture, whole, dict(model.state_dict()) | drafting)
    return Pair(folder, folder)
