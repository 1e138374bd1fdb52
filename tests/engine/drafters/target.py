"""The target that most of the drafters have, and what a drafter is made of."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.engine.models import HIDDEN, VOCABULARY

HEADS, KV_HEADS, HEAD_DIM = 2, 1, 32
INTERMEDIATE = 64
NOISE = 0.08  # of every layer's weights
FEW = (0, 1, 2, 4, 5, 6)  # the tokens of a reduced draft vocabulary
Weights = dict[str, torch.Tensor]

GEOMETRY: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "torch_dtype": "float32",
}


class Pair(NamedTuple):
    """Folders of two checkpoints; those of a target that drafts for itself are the same."""

    target: str
    draft: str


def llama(root: Path) -> tuple[str, Any]:
    """The target of most drafters: its folder, which is written once, and the model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = root / "llama"
    if folder.exists():
        return str(folder), LlamaForCausalLM.from_pretrained(folder).eval()
    torch.manual_seed(5)
    config = LlamaConfig(num_hidden_layers=2, initializer_range=NOISE, **GEOMETRY)
    model = LlamaForCausalLM(config).float().eval()
    tell(model)
    model.save_pretrained(folder)
    return str(folder), model


def tell(model: Any) -> None:
    """Let a model be surer of the next token than random ones are, mostly by the last one."""
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_()
        model.get_output_embeddings().weight.normal_(std=2.0 / HIDDEN**0.5)


def random(*shape: int, std: float = NOISE) -> torch.Tensor:
    return torch.randn(*shape) * std


def attention(width: int = HIDDEN, norms: bool = False) -> Weights:
    """A random attention over inputs of ``width``, by the names inside a layer."""
    weights = {
        "self_attn.q_proj.weight": random(HEADS * HEAD_DIM, width),
        "self_attn.k_proj.weight": random(KV_HEADS * HEAD_DIM, width),
        "self_attn.v_proj.weight": random(KV_HEADS * HEAD_DIM, width),
        "self_attn.o_proj.weight": random(HIDDEN, HEADS * HEAD_DIM),
    }
    if norms:
        weights["self_attn.q_norm.weight"] = torch.ones(HEAD_DIM)
        weights["self_attn.k_norm.weight"] = torch.ones(HEAD_DIM)
    return weights


def feed_forward() -> Weights:
    return {
        "mlp.gate_proj.weight": random(INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": random(INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": random(HIDDEN, INTERMEDIATE),
    }


def norms(*names: str) -> Weights:
    return {f"{name}.weight": torch.ones(HIDDEN) for name in names}


def named(prefix: str, weights: Weights) -> Weights:
    return {f"{prefix}{name}": weight for name, weight in weights.items()}


def normed(embeddings: torch.Tensor) -> torch.Tensor:
    return embeddings * embeddings.pow(2).mean(1, keepdim=True).rsqrt()


def echo(embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A ``v_proj`` and an ``o_proj`` that bring out of an attention the embedding it looks at.

    The values have fewer numbers than an embedding: enough to tell a few tokens apart.
    """
    value = torch.randn(KV_HEADS * HEAD_DIM, HIDDEN) / HIDDEN**0.5
    right = normed(embeddings)
    out = torch.linalg.lstsq(right @ value.T, right).solution.T
    return value, out.repeat(1, HEADS) / HEADS


def few(weights: torch.Tensor) -> Weights:
    """An output head ``[VOCABULARY, ...]`` cut to :data:`FEW`, and vLLM's map of its rows."""
    offsets = torch.tensor(FEW) - torch.arange(len(FEW))
    return {"lm_head.weight": weights[list(FEW)].clone(), "d2t": offsets}


def save(folder: Path, config: dict[str, Any], weights: Weights) -> str:
    """Write a checkpoint."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    contiguous = {name: weight.contiguous() for name, weight in weights.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)
