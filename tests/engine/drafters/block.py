"""Drafters that run once for a block of tokens: DFlash, DFlash2, LiLiCorr, DSpark.

A block's tokens know nothing of each other. What is added to that differs: DFlash2 and LiLiCorr
walk through a lattice of candidates, DSpark adds a bias for the token drawn before.
"""

from pathlib import Path
from typing import Any

import torch

from tests.engine.drafters.target import (
    GEOMETRY,
    HEAD_DIM,
    HIDDEN,
    Pair,
    Weights,
    attention,
    echo,
    feed_forward,
    few,
    llama,
    named,
    normed,
    norms,
    random,
    save,
)
from tests.engine.models import VOCABULARY, bigrams

BLOCK = 3  # drafts at most
MASK = VOCABULARY - 1  # stands for a token that is not known yet
CANDIDATES = 4  # of each position, for a walk
LAYERS = [0, 1]  # of the target, whose hidden states are read


def dflash(root: Path) -> Pair:
    target, model = llama(root)
    torch.manual_seed(51)
    weights = _backbone()
    _look_at_the_last_token(weights, model.get_input_embeddings().weight.detach())
    return _saved(root, target, "DFlashDraftModel", weights)


def dflash_of_few_tokens(root: Path) -> Pair:
    target, model = llama(root)
    torch.manual_seed(51)
    weights = _backbone()
    _look_at_the_last_token(weights, model.get_input_embeddings().weight.detach())
    weights |= few(model.get_output_embeddings().weight.detach())
    return _saved(root, target, "DFlashDraftModel", weights)


def dflash2(root: Path) -> Pair:
    """Its selector knows what the target makes of each token on average."""
    target, model = llama(root)
    torch.manual_seed(52)
    weights = _backbone()
    taps, groups = 2, 4
    for name in ("attention_conv", "mlp_conv"):
        base = torch.zeros(2, taps, HIDDEN)
        base[:, 0] = 1.0
        weights[f"layers.0.{name}.base_kernel"] = base + random(2, taps, HIDDEN)
        projection = random(2 * taps * groups, HIDDEN, std=0.02)
        weights[f"layers.0.{name}.kernel_projection.weight"] = projection
    mask = model.get_input_embeddings().weight.detach()[MASK]
    weights |= {
        "candidate_selector.predecessor_codebook": torch.eye(VOCABULARY),
        "candidate_selector.successor_codebook": bigrams(model).T,
        # Nearly the same for every masked position, since each begins as the mask.
        "candidate_selector.hidden_projection.weight": mask.expand(VOCABULARY, -1) / HIDDEN,
    }
    draft = {
        "conv_kernel_size": taps,
        "conv_group_size": HIDDEN // groups,
        "selector_rank": VOCABULARY,
        "selector_top_k": CANDIDATES,
    }
    return _saved(root, target, "DFlash2DraftModel", weights, draft)


def lilicorr(root: Path) -> Pair:
    """Its correlator is random, and small enough to leave the backbone's word."""
    target, _ = llama(root)
    torch.manual_seed(53)
    width, heads, factors = 16, 2, 8
    head = {
        "token_proj.weight": random(width, HIDDEN),
        "token_proj.bias": torch.zeros(width),
        "pass_hidden_proj.weight": random(width, HIDDEN),
        "pass_hidden_proj.bias": torch.zeros(width),
        "context_proj.weight": random(width, HIDDEN),
        "context_proj.bias": torch.zeros(width),
        "feature_norm.weight": torch.ones(5),
        "feature_norm.bias": torch.zeros(5),
        "slot_embedding": random(1, 1, BLOCK, 1, width),
        "rank_embedding": random(1, 1, 1, CANDIDATES, width),
        "relative_slot_bias": random(heads, 2 * BLOCK + 1),
        "same_slot_bias": random(heads),
        "output_norm.weight": torch.ones(width),
        "anchor_norm.weight": torch.ones(width),
        "factor_input_proj.weight": random(width, 3 * width, std=0.5),
        "factor_input_proj.bias": torch.zeros(width),
        "layers.0.attn_norm.weight": torch.ones(width),
        "layers.0.attn.in_proj_weight": random(3 * width, width),
        "layers.0.attn.in_proj_bias": torch.zeros(3 * width),
        "layers.0.attn.out_proj.weight": random(width, width),
        "layers.0.attn.out_proj.bias": torch.zeros(width),
        "layers.0.mlp_norm.weight": torch.ones(width),
    }
    for name, into, out in (("feature_mlp", 5, width), ("layers.0.mlp", width, width)):
        head |= {
            f"{name}.up_proj.weight": random(width, into),
            f"{name}.up_proj.bias": torch.zeros(width),
            f"{name}.down_proj.weight": random(out, width),
            f"{name}.down_proj.bias": torch.zeros(out),
        }
    for name in ("out_head", "in_head", "anchor_out_head"):
        head |= {
            f"{name}.weight": random(factors, width, std=0.5),
            f"{name}.bias": torch.zeros(factors),
        }
    draft = {
        "lilicorr_hidden_size": width,
        "lilicorr_candidate_topk": CANDIDATES,
        "lilicorr_num_heads": heads,
        "lilicorr_num_layers": 1,
        "lilicorr_mlp_ratio": 1.0,
        "lilicorr_factor_dim": factors,
        "lilicorr_vector_eps": 1e-6,
        "lilicorr_logit_scale": 2.0,
        "block_size": BLOCK + 1,
    }
    weights = _backbone() | named("lilicorr.", head)
    return _saved(root, target, "LiLiCorrDraftModel", weights, draft)


def dspark(root: Path, head: bool = False, reduced: bool = False) -> Pair:
    """Its Markov head knows what the target makes of each token on average."""
    target, model = llama(root)
    torch.manual_seed(54)
    weights = _backbone()
    weights["norm.weight"] = torch.full((HIDDEN,), 0.3)  # the backbone is noise: less of it
    following = bigrams(model).T
    if reduced:
        small = few(following)
        following = small.pop("lm_head.weight")
        weights |= few(model.get_output_embeddings().weight.detach())
    weights |= {
        "markov_head.markov_w1.weight": torch.eye(VOCABULARY),
        "markov_head.markov_w2.weight": following,
    }
    if head:
        weights["confidence_head.proj.weight"] = random(1, HIDDEN + VOCABULARY, std=0.3)
        weights["confidence_head.proj.bias"] = torch.full((1,), 0.5)
    config = {
        "dspark_block_size": BLOCK,
        "mask_token_id": MASK,
        "num_target_layers": len(LAYERS),
        "target_layer_ids": LAYERS,
        "dspark_target_layer_ids": LAYERS,
        "markov_rank": VOCABULARY,
        "markov_head_type": "vanilla",
        "enable_confidence_head": head,
        "confidence_head_with_markov": True,
    }
    return _saved(root, target, "Qwen3DSparkModel", weights, {}, config)


def dspark_of_few_tokens(root: Path) -> Pair:
    return dspark(root, reduced=True)


def dspark_with_head(root: Path) -> Pair:
    return dspark(root, head=True)


def _backbone() -> Weights:
    layer = attention(norms=True) | feed_forward()
    layer |= norms("input_layernorm", "post_attention_layernorm")
    weights = named("layers.0.", layer) | norms("hidden_norm", "norm")
    weights["fc.weight"] = random(HIDDEN, len(LAYERS) * HIDDEN)
    return weights


def _look_at_the_last_token(weights: Weights, embeddings: torch.Tensor) -> None:
    """Let the masked positions see the token that is known, which begins the block.

    Keys and queries say only whether a token is the mask. What they say lies where the rotation is
    slowest, and the context, which comes by ``fc``, says neither.
    """
    place = "layers.0.self_attn.{}_proj.weight".format
    known = torch.ones(VOCABULARY)
    known[MASK] = -1.0
    says = torch.linalg.pinv(normed(embeddings)) @ known
    slowest = HEAD_DIM // 2 - 1
    for name in "qk":
        weights[place(name)].zero_()
    weights[place("k")][slowest] = says
    weights[place("q")][slowest::HEAD_DIM] = -says  # the mask looks at what is known
    weights["fc.weight"] -= torch.outer(says, says @ weights["fc.weight"]) / (says @ says)
    weights[place("v")], weights[place("o")] = echo(embeddings)
    weights[place("o")] *= 2.0


def _saved(
    root: Path,
    target: str,
    architecture: str,
    weights: Weights,
    draft: dict[str, Any] | None = None,
    changes: dict[str, Any] | None = None,
) -> Pair:
    config = GEOMETRY | {
        "architectures": [architecture],
        "model_type": "qwen3",
        "num_hidden_layers": 1,
        "block_size": BLOCK,
        "num_target_layers": len(LAYERS),
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": LAYERS} | (draft or {}),
    }
    if "lm_head.weight" in weights:
        config["draft_vocab_size"] = len(weights["lm_head.weight"])
    folder = root / f"{architecture}{len(list(root.iterdir()))}"
    return Pair(target, save(folder, config | (changes or {}), weights))
