"""The small target and its MTP layer, as vLLM's ``MiMoForCausalLM`` and ``MiMoMTP`` compute them.

Target (Qwen2's layers): ``r = E[x]``; each layer ``r += attention(norm(r)); r += mlp(norm(r))``;
logits ``= norm(r) @ E.T``. What is handed to the MTP layer is ``r``, before the last norm.

MTP layer at position p, with ``h`` of position p and the token of position p+1:
``z = W [norm(h); norm(e)]``, where ``e = E[x[p+1]]``, and 0 at position 0; one such layer over
``z``; ``f = norm(z)``; logits of position p+2 ``= f @ E.T``. The engine repeats the layer: at
position p+1 it takes ``f`` for ``h`` and the draft for the token, and sees all earlier keys.

Rule: parameters bear the checkpoint's names, so that the state is what is written. Weights are
float32; products are bfloat16 while training (``compute``), sums and norms float32 always.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from vllm_av.training.layers import Mlp, Norm, Projections, rotated


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. Qwen2's queries, keys and values have a bias, Llama's none."""

    vocabulary: int = 1024
    hidden: int = 192
    intermediate: int = 384
    layers: int = 5
    heads: int = 6
    kv_heads: int = 2
    head: int = 32
    bias: bool = True
    positions: int = 2048
    theta: float = 10000.0
    epsilon: float = 1e-6

    def config(self, **more: object) -> dict[str, object]:
        """The sizes as a checkpoint's ``config.json`` names them, ``more`` of them among them."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            **more,
            "max_position_embeddings": self.positions,
            "rope_theta": self.theta,
            "rms_norm_eps": self.epsilon,
            "hidden_act": "silu",
        }


@dataclass(frozen=True)
class Keys:
    """Rotated keys and the values of a run of positions, each ``[B, kv_heads, T, head]``."""

    keys: Tensor
    values: Tensor


class Linear(nn.Linear):
    """A matrix product in bfloat16 where the model trains, whose result is float32."""

    compute: torch.dtype = torch.float32

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in] -> [..., out]``, float32."""
        weight = self.weight.to(self.compute)
        out = functional.linear(x.to(self.compute), weight).float()
        return out if self.bias is None else out + self.bias


class Attention(Projections):
    """Grouped-query attention with rotary positions."""

    def __init__(self, shape: Shape) -> None:
        heads = shape.heads, shape.kv_heads, shape.head
        super().__init__(shape.hidden, shape.hidden, heads, Linear, shape.bias)
        self.theta = shape.theta

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Keys]:
        """``x [B, T, hidden]``, ``positions [T]`` -> queries ``[B, heads, T, head]`` and keys."""
        q, k, v = (self.by_head(each(x)) for each in (self.q_proj, self.k_proj, self.v_proj))
        keys = Keys(rotated(k, positions, self.theta), v)
        return rotated(q, positions, self.theta), keys

    def forward(self, x: Tensor, positions: Tensor, past: Keys | None) -> tuple[Tensor, Keys]:
        """Causal over ``past`` and ``x``; returns ``[B, T, hidden]`` and the keys of both."""
        q, own = self.project(x, positions)
        if past is not None:
            own = Keys(torch.cat([past.keys, own.keys], 2), torch.cat([past.values, own.values], 2))
        if past is not None and x.shape[1] > 1:
            raise ValueError("with earlier keys, one position at a time")
        mixed = functional.scaled_dot_product_attention(
            q, own.keys, own.values, is_causal=past is None, enable_gqa=True
        )
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out, own


class Layer(nn.Module):
    """One layer of Qwen2, or of Llama."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape.hidden, shape.epsilon)
        self.mlp = Mlp(shape.hidden, shape.intermediate, Linear)

    def forward(
        self, x: Tensor, positions: Tensor, past: Keys | None = None
    ) -> tuple[Tensor, Keys]:
        """``x [B, T, hidden]`` -> the same shape, and the keys so far."""
        mixed, keys = self.self_attn(self.input_layernorm(x), positions, past)
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x)), keys


class MtpLayer(Layer):
    """The layer that drafts."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.token_layernorm = Norm(shape.hidden, shape.epsilon)
        self.hidden_layernorm = Norm(shape.hidden, shape.epsilon)
        self.input_proj = Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.final_layernorm = Norm(shape.hidden, shape.epsilon)

    def rollout(self, hidden: Tensor, embedded: Tensor, steps: int) -> Iterator[Tensor]:
        """Draft ``steps`` tokens from every position at once, given the true tokens.

        Args:
            hidden: ``[B, T, hidden]``, the target's, at positions 0 to T-1.
            embedded: ``[B, T + steps - 1, hidden]``, of the tokens at 1 to T + steps - 1.

        Yields:
            For step s, ``[B, T, hidden]``: at t, what gives the logits of position t + s + 2.
        """
        length = hidden.shape[1]
        embedded = torch.cat([torch.zeros_like(embedded[:, :1]), embedded[:, 1:]], 1)
        features, own = hidden, list[Keys]()
        for step in range(steps):
            token = self.token_layernorm(embedded[:, step : step + length])
            x = self.input_proj(torch.cat([self.hidden_layernorm(features), token], -1))
            positions = torch.arange(step, step + length)
            q, keys = self.self_attn.project(self.input_layernorm(x), positions)
            own.append(keys)
            x = x + self.self_attn.o_proj(_over_drafts(q, own))
            x = x + self.mlp(self.post_attention_layernorm(x))
            features = self.final_layernorm(x)
            yield features


class Body(nn.Module):
    """What the checkpoint keeps below ``model.``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.epsilon)
        self.mtp_layers = nn.ModuleList([MtpLayer(shape)])


class TinyModel(nn.Module):
    """Target and MTP layer; the embedding is the output head of both."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif "norm" not in name:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * shape.layers) ** 0.5 if deep else 0.02)

    def hidden(self, tokens: Tensor, past: list[Keys] | None = None) -> tuple[Tensor, list[Keys]]:
        """What the MTP layer is handed.

        Args:
            tokens: int64 ``[B, T]``; a single position where there is a ``past``.
            past: keys of the positions before, one a layer.

        Returns:
            ``[B, T, hidden]`` before the last norm, and the keys so far.
        """
        start = past[0].keys.shape[2] if past else 0
        positions = torch.arange(start, start + tokens.shape[1])
        x, keys = self.model.embed_tokens(tokens), list[Keys]()
        for number, layer in enumerate(self.model.layers):
            x, own = layer(x, positions, past[number] if past else None)
            keys.append(own)
        return x, keys

    def logits(self, hidden: Tensor) -> Tensor:
        """The target's ``[..., vocabulary]`` from :meth:`hidden`."""
        return self.head(self.model.norm(hidden))

    def head(self, features: Tensor) -> Tensor:
        """``[..., vocabulary]`` from normed features, the target's or the MTP layer's."""
        compute = self.model.layers[0].mlp.up_proj.compute
        weight = self.model.embed_tokens.weight.to(compute)
        return functional.linear(features.to(compute), weight).float()

    def drafts(self, hidden: Tensor, tokens: Tensor, steps: int) -> Iterator[Tensor]:
        """Logits of each draft step; see :meth:`MtpLayer.rollout`.

        Args:
            hidden: ``[B, T, hidden]`` of the target.
            tokens: int64 ``[B, T + steps - 1]``, those at positions 1 to T + steps - 1.
            steps: how many.
        """
        embedded = self.model.embed_tokens(tokens)
        for features in self.model.mtp_layers[0].rollout(hidden, embedded, steps):
            yield self.head(features)


def compute_in(model: nn.Module, dtype: torch.dtype) -> None:
    """Take the matrix products of ``model`` in ``dtype`` from now on."""
    for each in model.modules():
        if isinstance(each, Linear):
            each.compute = dtype


def _over_drafts(q: Tensor, own: list[Keys]) -> Tensor:
    """Attention where t sees the first keys up to t, and of each later run its own position t.

    Args:
        q: ``[B, heads, T, head]``.
        own: a run of keys for each step up to this one.

    Returns:
        ``[B, T, heads * head]``.
    """
    first, later = own[0], own[1:]
    grouped = q.unflatten(1, (first.keys.shape[1], -1)) * q.shape[-1] ** -0.5
    length = q.shape[2]
    unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
    text = (grouped @ first.keys[:, :, None].transpose(-1, -2)).masked_fill(unseen, -torch.inf)
    drafts = [(grouped * each.keys[:, :, None]).sum(-1, keepdim=True) for each in later]
    weights = torch.cat([text, *drafts], -1).softmax(-1)
    mixed = weights[..., :length] @ first.values[:, :, None]
    for number, each in enumerate(later):
        mixed = mixed + weights[..., length + number, None] * each.values[:, :, None]
    return mixed.flatten(1, 2).transpose(1, 2).flatten(2)
