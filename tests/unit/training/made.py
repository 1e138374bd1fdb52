"""A small drafter as a stage leaves it, for what reads such folders."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file


def eagle(folder: Path, fill: float = 1.0) -> Path:
    """An EAGLE head four wide, each weight of it ``fill``."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        "fc.weight": torch.full((4, 8), fill),
        "layers.0.mlp.down_proj.weight": torch.full((4, 6), fill),
    }
    save_file(weights, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4,
        "intermediate_size": 6,
        "num_hidden_layers": 1,
        "vocab_size": 32,
        "fill": fill,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "training.json").write_text(json.dumps({"digest": f"of {fill}"}))
    return folder
