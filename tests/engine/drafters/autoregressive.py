"""Drafters that run once for each token: a plain draft model, EAGLE, EAGLE-3."""

from pathlib import Path

import torch

from tests.engine.drafters.target import (
    GEOMETRY,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    Pair,
    Weights,
    attention,
    echo,
    feed_forward,
    few,
    llama,
    named,
    norms,
    random,
    save,
)


def draft_model(root: Path) -> Pair:
    """The target with noise on each weight."""
    target, model = llama(root)
    torch.manual_seed(21)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(root / "draft-model")
    return Pair(target, str(root / "draft-model"))


def eagle(root: Path) -> Pair:
    """One layer that hears the token well and the target's hidden state faintly."""
    target, _ = llama(root)
    torch.manual_seed(22)
    weights = named("layers.0.", attention() | feed_forward() | norms("post_attention_layernorm"))
    weights["fc.weight"] = torch.cat([torch.eye(HIDDEN), random(HIDDEN, HIDDEN, std=0.03)], dim=1)
    config = GEOMETRY | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
    }
    return Pair(target, save(root / "eagle", config, weights))


def eagle3(root: Path, reduced: bool = False) -> Pair:
    """One layer over token and hidden states of the target's two layers; a head of its own."""
    target, model = llama(root)
    torch.manual_seed(23)
    weights = named("midlayer.", attention(2 * HIDDEN) | feed_forward())
    weights |= named("midlayer.", norms("input_layernorm", "hidden_norm"))
    weights |= named("midlayer.", norms("post_attention_layernorm")) | norms("norm")
    weights["fc.weight"] = random(HIDDEN, 2 * HIDDEN, std=0.03)
    _hear_the_token(weights, model.get_input_embeddings().weight.detach())
    head = model.get_output_embeddings().weight.detach()
    weights |= few(head) if reduced else {"lm_head.weight": head}
    layers = [1, 2]
    config = GEOMETRY | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": len(weights["lm_head.weight"]),
        "eagle_aux_hidden_state_layer_ids": layers,
        "num_aux_hidden_states": len(layers),
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": layers},
    }
    folder = root / ("eagle3-few" if reduced else "eagle3")
    return Pair(target, save(folder, config, weights))


def eagle3_of_few_tokens(root: Path) -> Pair:
    return eagle3(root, reduced=True)


def _hear_the_token(weights: Weights, embeddings: torch.Tensor) -> None:
    """Let the attention of an EAGLE-3 layer, whose residual has no token in it, bring it there.

    Keys are like queries, so that each position looks at its like: at itself first.
    """
    place = "midlayer.self_attn.{}_proj.weight".format
    heard = torch.randn(KV_HEADS * HEAD_DIM, HIDDEN) / HIDDEN**0.5
    value, out = echo(embeddings)
    weights[place("k")][:, :HIDDEN] = heard
    weights[place("q")][:, :HIDDEN] = heard.repeat(HEADS, 1)
    weights[place("v")][:, :HIDDEN] = value
    weights[place("o")] = out
