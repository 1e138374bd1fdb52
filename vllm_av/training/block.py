"""The parallel backbone that DFlash and DSpark share, as vLLM's ``qwen3_dflash.py`` runs it.

A block stands behind every *anchor*, the newest token that the target has not read yet, at position
``a``: row 0 is the anchor, the other rows are the mask token at ``a + 1, a + 2, ...``, and all rows
go through the layers at once. What they know of the text before the anchor are context keys and
values, made of the target's residual stream::

    context = hidden_norm(fc(concatenated residual streams))      the same for every layer
    key, value = rope(k_norm(k_proj(context))), v_proj(context)   no input norm, no residual

A row attends to the context at positions below its own anchor, and to the rows of its own block: to
all of them, as DFlash's default is (``causal`` false). It never sees a token behind the anchor.

Rule: parameters have the names and shapes of the checkpoint; vLLM loads what :func:`export` gives.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vllm_av.training import layers

# A token that no text has: its row in the target's embedding stands for "to be drafted".
MASK_TOKEN = 16


@dataclass(frozen=True)
class BackboneShape:
    """Sizes of a backbone; those of the heads are the target's, so that both share a KV cache."""

    layers: int
    intermediate: int
    target_layers: tuple[int, ...]  # their *outputs* are read: vLLM's aux layer ids are one more
    hidden: int = 576
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    rope_theta: float = 10_000.0
    epsilon: float = 1e-5


@dataclass(frozen=True)
class Blocks:
    """Blocks of ``rows`` rows behind ``anchors`` anchors in each of some texts.

    Attributes:
        texts: int64 ``[texts + 1]``, where each text begins in the concatenated context.
        anchors: int64 ``[texts, anchors]``, position of each anchor within its text.
        tokens: int64 ``[texts, anchors]``, the anchors themselves.
        rows: rows of a block, the anchor included.
    """

    texts: Tensor
    anchors: Tensor
    tokens: Tensor
    rows: int

    @property
    def positions(self) -> Tensor:
        """int64 ``[texts, anchors, rows]``, position of each row within its text."""
        return self.anchors[..., None] + torch.arange(self.rows)

    @property
    def inputs(self) -> Tensor:
        """int64 ``[texts, anchors, rows]``, token of each row."""
        tokens = torch.full((*self.anchors.shape, self.rows), MASK_TOKEN)
        tokens[..., 0] = self.tokens
        return tokens


def visible(anchors: Tensor, length: int) -> Tensor:
    """Which context positions the blocks of one text may see: bool ``[anchors, length]``."""
    return torch.arange(length) < anchors[:, None]


class Norm(layers.Norm):
    """RMS norm over the last dimension, in float32 within."""

    def forward(self, x: Tensor) -> Tensor:
        """``[..., size]`` to the same, in its type."""
        return super().forward(x.float()).to(x.dtype)


class Linear(nn.Linear):
    """A linear map: float32 weights, computed in the type of its input."""

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in]`` to ``[..., out]``."""
        return F.linear(x, self.weight.to(x.dtype))


class Attention(layers.Projections):
    """Rows of blocks over the context of their text and over each other."""

    def __init__(self, shape: BackboneShape) -> None:
        heads = shape.heads, shape.kv_heads, shape.head_dim
        super().__init__(shape.hidden, shape.hidden, heads, Linear)
        self.shape = shape
        self.q_norm = Norm(shape.head_dim, shape.epsilon)
        self.k_norm = Norm(shape.head_dim, shape.epsilon)

    def keys_and_values(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of ``states`` ``[..., hidden]``: two of ``[..., kv_heads, head_dim]``."""
        size = (*states.shape[:-1], self.shape.kv_heads, self.shape.head_dim)
        keys = self.k_norm(self.k_proj(states).view(size))
        return self._rotated(keys, positions), self.v_proj(states).view(size)

    def forward(self, states: Tensor, context: Tensor, blocks: Blocks) -> Tensor:
        """``states`` ``[texts, anchors, rows, hidden]`` -> the same shape."""
        size = (*states.shape[:-1], self.shape.heads, self.shape.head_dim)
        queries = self._rotated(self.q_norm(self.q_proj(states).view(size)), blocks.positions)
        keys, values = self.keys_and_values(states, blocks.positions)
        starts = blocks.texts.tolist()
        places = torch.cat([torch.arange(b - a) for a, b in pairwise(starts)])
        before_keys, before_values = self.keys_and_values(context, places)
        mixed = [
            attend(
                queries[text],
                before_keys[start:stop],
                before_values[start:stop],
                keys[text],
                values[text],
                visible(blocks.anchors[text], stop - start),
            )
            for text, (start, stop) in enumerate(pairwise(starts))
        ]
        out: Tensor = self.o_proj(torch.stack(mixed))
        return out

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """``x`` ``[..., heads, head_dim]`` at ``positions`` ``[...]``."""
        return layers.rotated(x, positions[..., None], self.shape.rope_theta)


def attend(
    queries: Tensor,
    context_keys: Tensor,
    context_values: Tensor,
    keys: Tensor,
    values: Tensor,
    seen: Tensor,
) -> Tensor:
    """Attention of the blocks of one text; softmax in float32.

    Args:
        queries: ``[anchors, rows, heads, head_dim]``.
        context_keys, context_values: ``[length, kv_heads, head_dim]``.
        keys, values: ``[anchors, rows, kv_heads, head_dim]``, the blocks' own.
        seen: bool ``[anchors, length]``, the context that each block may see.

    Returns:
        ``[anchors, rows, heads * head_dim]``, in the type of ``queries``.
    """
    anchors, rows, heads, size = queries.shape
    length, groups, _ = context_keys.shape
    each = heads // groups
    # [groups, anchors, rows * each, size]: query heads that share a key head lie together.
    grouped = (queries * size**-0.5).view(anchors, rows, groups, each, size)
    grouped = grouped.permute(2, 0, 1, 3, 4).reshape(groups, anchors, rows * each, size)
    flat = grouped.reshape(groups, anchors * rows * each, size)
    outer = torch.bmm(flat, context_keys.permute(1, 2, 0))
    outer = outer.view(groups, anchors, rows * each, length).float()
    outer = outer.masked_fill(~seen[:, None, :], -torch.inf)
    own = keys.permute(2, 0, 1, 3).reshape(groups * anchors, rows, size)
    own_values = values.permute(2, 0, 1, 3).reshape(groups * anchors, rows, size)
    inner = torch.bmm(grouped.reshape(groups * anchors, rows * each, size), own.mT)
    inner = inner.view(groups, anchors, rows * each, rows).float()
    weights = torch.cat([outer, inner], dim=-1).softmax(-1).to(queries.dtype)
    far, near = weights.split([length, rows], dim=-1)
    mixed = torch.bmm(far.reshape(groups, -1, length), context_values.transpose(0, 1))
    mixed = mixed + torch.bmm(
        near.reshape(groups * anchors, rows * each, rows), own_values
    ).view_as(mixed)
    mixed = mixed.view(groups, anchors, rows, each, size).permute(1, 2, 0, 3, 4)
    return mixed.reshape(anchors, rows, heads * size)


class Layer(nn.Module):
    """A decoder layer; norms come before attention and MLP."""

    def __init__(self, shape: BackboneShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = layers.Mlp(shape.hidden, shape.intermediate, Linear)
        self.input_layernorm = Norm(shape.hidden, shape.epsilon)
        self.post_attention_layernorm = Norm(shape.hidden, shape.epsilon)

    def forward(self, states: Tensor, context: Tensor, blocks: Blocks) -> Tensor:
        states = states + self.self_attn(self.input_layernorm(states), context, blocks)
        return states + self.mlp(self.post_attention_layernorm(states))


class Backbone(nn.Module):
    """From the target's residual streams and the anchors to the state of every row.

    Args:
        shape: the sizes.
        scale: float32 ``[len(target_layers) * hidden]``; each channel of the streams is multiplied
            by it, so that one learning rate fits all. :func:`export` folds it into ``fc``.
    """

    scale: Tensor

    def __init__(self, shape: BackboneShape, scale: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.fc = Linear(len(shape.target_layers) * shape.hidden, shape.hidden, bias=False)
        self.hidden_norm = Norm(shape.hidden, shape.epsilon)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.epsilon)
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, streams: Tensor, blocks: Blocks, embedding: Tensor) -> Tensor:
        """States of the rows, the final norm applied: ``[texts, anchors, rows, hidden]``.

        Args:
            streams: ``[sum of lengths, len(target_layers) * hidden]``, texts one after another.
            blocks: where the blocks stand; ``blocks.texts`` says where each text begins.
            embedding: the target's, ``[vocabulary, hidden]``.
        """
        context = self.hidden_norm(self.fc(streams * self.scale.to(streams.dtype)))
        states = F.embedding(blocks.inputs, embedding).to(streams.dtype)
        for layer in self.layers:
            states = layer(states, context, blocks)
        return self.norm(states)


def export(backbone: Backbone) -> dict[str, Tensor]:
    """The backbone's weights in bfloat16 as its checkpoint names them."""
    weights = dict(backbone.state_dict())
    weights["fc.weight"] = weights["fc.weight"] * backbone.scale
    return {name: weight.to(torch.bfloat16).contiguous() for name, weight in weights.items()}


def restore(backbone: Backbone, weights: dict[str, Tensor]) -> None:
    """Load what :func:`export` gave (a checkpoint may hold more than the backbone's names)."""
    own = {name: weights[name].float() for name in backbone.state_dict()}
    own["fc.weight"] = own["fc.weight"] / backbone.scale
    backbone.load_state_dict(own)


def config(shape: BackboneShape, vocabulary: int, draft_vocabulary: int) -> dict[str, object]:
    """``config.json`` as vLLM reads it, without the architecture's name."""
    return {
        "model_type": "qwen3",
        "vocab_size": vocabulary,
        "draft_vocab_size": draft_vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": 8192,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "dflash_config": {
            "mask_token_id": MASK_TOKEN,
            "target_layer_ids": list(shape.target_layers),
        },
    }
