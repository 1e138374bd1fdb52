"""Training-time rollout of drafters that run one layer once a draft: EAGLE and EAGLE-3.

A *start* ``i`` is a position whose next token is verified. Draft step 0 reads ``h_i`` of the target
and token ``x_{i+1}``; step ``s`` stands at position ``j = i + s`` and reads what step ``s - 1`` put
out at ``j - 1``, and token ``x_{j+1}``. Each step aims at the target's distribution of
``x_{j+2}``, whose logits come from the target's state at ``j + 1``. As in the engine, the query of
step ``s`` sees the keys of step 0 up to the start, and those of its own chain after it::

    position        0 ... i - 1   i   i + 1   ...   i + s
    key from step        0        0     1     ...     s

All starts of a batch run side by side, so a step's keys are stored by position.

Rule: a step sees what it would see in the engine, and nothing more.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vllm_av.training.data import SequenceBatch
from vllm_av.training.layers import Mlp, Norm, Projections, rotated

HIDDEN = 576
HEADS = 9
KV_HEADS = 3
HEAD_SIZE = 64
ROPE_THETA = 100_000.0
EPSILON = 1e-5


@dataclass(frozen=True)
class Window:
    """The positions of a batch whose drafts are trained: answers, from the prompt's last token.

    Args:
        positions: int64 ``[B, A]``; beyond a sequence's end they repeat its last position.
        valid: bool ``[B, A]``, where a draft at that position has a target.
        asked: bool ``[B, A]``, where the position is one of the prompt's, its last excepted.
    """

    positions: Tensor
    valid: Tensor
    asked: Tensor

    @staticmethod
    def of(batch: SequenceBatch, before: int = 0) -> "Window":
        """The window of ``batch``; it begins up to ``before`` tokens before each answer's."""
        answers = batch.prompt_lengths - 1
        first = (answers - before).clamp_min(0)
        # A draft at j is compared at j + 1; the state after the last token is not used: what
        # follows the end of a text is nothing that anybody asks for.
        last = batch.lengths - 3
        width = int((last - first).max()) + 1
        positions = first[:, None] + torch.arange(width)
        valid = positions <= last[:, None]
        return Window(
            positions.minimum(batch.lengths[:, None] - 2), valid, positions < answers[:, None]
        )

    def take(self, values: Tensor, offset: int = 0) -> Tensor:
        """``values[b, positions[b, a] + offset]``; ``[B, T, ...]`` to ``[B, A, ...]``."""
        rows = torch.arange(len(values))[:, None]
        return values[rows, self.positions + offset]


class Attention(Projections):
    """Grouped-query attention with rotary positions, for inputs of ``width``."""

    def __init__(self, width: int) -> None:
        super().__init__(width, HIDDEN, (HEADS, KV_HEADS, HEAD_SIZE))

    def keys_and_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """``[B, T, width]`` and ``[B, T]`` to two of ``[B, KV_HEADS, T, HEAD_SIZE]``."""
        keys, values = self.by_head(self.k_proj(x)), self.by_head(self.v_proj(x))
        return rotated(keys, positions[:, None], ROPE_THETA), values

    def forward(
        self, x: Tensor, positions: Tensor, keys: Tensor, values: Tensor, visible: Tensor
    ) -> Tensor:
        """What the queries of ``x`` ``[B, A, width]`` read.

        Args:
            positions: int64 ``[B, A]``.
            keys: ``[B, KV_HEADS, T, HEAD_SIZE]``, and ``values`` likewise.
            visible: bool ``[B, 1, A, T]``.
        """
        repeats = HEADS // KV_HEADS
        read = F.scaled_dot_product_attention(
            rotated(self.by_head(self.q_proj(x)), positions[:, None], ROPE_THETA),
            keys.repeat_interleave(repeats, 1),
            values.repeat_interleave(repeats, 1),
            attn_mask=visible,
        )
        out: Tensor = self.o_proj(read.transpose(1, 2).flatten(-2))
        return out


class Layer(nn.Module):
    """Attention over inputs of ``width``, and MLP, over a residual stream.

    Args:
        width: of attention's inputs.
        intermediate: units of the MLP.
    """

    def __init__(self, width: int, intermediate: int) -> None:
        super().__init__()
        self.self_attn = Attention(width)
        self.post_attention_layernorm = Norm(HIDDEN, EPSILON)
        self.mlp = Mlp(HIDDEN, intermediate)

    def forward(self, read: Tensor, residual: Tensor) -> Tensor:
        """The residual stream after the layer, from what attention read and the stream before."""
        residual = residual + read
        out: Tensor = residual + self.mlp(self.post_attention_layernorm(residual))
        return out


class OneLayerHead(nn.Module, ABC):
    """One layer that drafts, behind ``fc``; its parameters have the names of the checkpoint."""

    fc: nn.Linear
    layers: nn.ModuleList

    def start(self) -> None:
        """Begin near "the next state is the last that ``fc`` reads": much of a text's lasts."""
        with torch.no_grad():
            self.fc.weight.mul_(0.3)
            self.fc.weight[:, -HIDDEN:] += 0.8 * torch.eye(HIDDEN)
            self.attention.o_proj.weight.mul_(0.3)
            self.only_layer.mlp.down_proj.weight.mul_(0.3)

    @property
    def only_layer(self) -> Layer:
        """The only one of ``layers``."""
        layer = self.layers[0]
        assert isinstance(layer, Layer)
        return layer

    @property
    def attention(self) -> Attention:
        """The layer's."""
        return self.only_layer.self_attn

    @abstractmethod
    def states(self, features: Tensor) -> Tensor:
        """What stands for the target at each position; ``[..., 4, H]`` to ``[..., H]``."""

    @abstractmethod
    def joined(self, embeds: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Attention's input and the residual stream; two of ``[..., H]`` to two."""

    @abstractmethod
    def layer(self, read: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """What the head reads and what the next step gets, after attention read ``read``."""

    def forward(
        self, batch: SequenceBatch, window: Window, embedding: Tensor, steps: int
    ) -> Tensor:
        """What the head reads at each step, ``[steps, B, A, H]``.

        Args:
            batch: ``B`` sequences.
            window: of the batch; ``A`` positions wide.
            embedding: ``[V, H]``, the target's.
            steps: draft steps to run. Step ``s`` has no meaning at the window's first ``s``.
        """
        length = batch.ids.shape[1] - 1
        states = self.states(batch.features[:, :length])
        following = F.embedding(batch.ids[:, 1:], embedding)
        x, residual = self.joined(following, states)
        everywhere = torch.arange(length).expand(len(x), -1)
        keys, values = self.attention.keys_and_values(x, everywhere)
        embeds = window.take(following)
        x, residual = window.take(x), window.take(residual)
        before = window.positions[:, None, :, None] - torch.arange(length)
        put_out = []
        chain = torch.arange(window.positions.shape[1])
        for step in range(steps):
            if step:
                x, residual = self.joined(embeds, _moved(states))
                own_keys, own_values = self.attention.keys_and_values(x, window.positions)
                keys = torch.cat([keys, own_keys], 2)
                values = torch.cat([values, own_values], 2)
            # Of an earlier step's keys, the one that lies as far back as the step does.
            visible = [
                (chain[:, None] - chain == step - own).expand(len(x), 1, -1, -1)
                for own in range(1, step + 1)
            ]
            seen = torch.cat([before >= step, *visible], -1)
            # A query without any key would make NaN; its row has no meaning, so it sees one.
            seen[..., 0] |= ~seen.any(-1)
            read = self.attention(x, window.positions, keys, values, seen)
            out, states = self.layer(read, residual)
            put_out.append(out)
        return torch.stack(put_out)


def _moved(states: Tensor) -> Tensor:
    """Each position gets what the one before it put out; the first has none and gets its own."""
    return torch.cat([states[:, :1], states[:, :-1]], 1)
