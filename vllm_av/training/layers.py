"""The parts of a Llama layer, of which every model of this package is built.

Rule: parameters have the checkpoint's names. What a drafter's own file adds is what sets it apart:
the type in which a product or a norm is computed, and what its attention sees.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Norm(nn.Module):
    """RMS norm of ``size`` channels."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """``[..., size]`` to the same."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class Mlp(nn.Module):
    """``down(silu(gate(x)) * up(x))``, of matrices that are ``linear``."""

    def __init__(self, hidden: int, intermediate: int, linear: type[nn.Linear] = nn.Linear) -> None:
        super().__init__()
        self.gate_proj = linear(hidden, intermediate, bias=False)
        self.up_proj = linear(hidden, intermediate, bias=False)
        self.down_proj = linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., hidden]`` to the same."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Projections(nn.Module):
    """The four matrices of grouped-query attention, without what it sees.

    Args:
        width: of what queries, keys and values are made of.
        hidden: of what attention puts out.
        heads: of queries, keys, and elements of each.
        linear: what the matrices are.
        bias: of queries, keys and values.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        heads: tuple[int, int, int],
        linear: type[nn.Linear] = nn.Linear,
        bias: bool = False,
    ) -> None:
        super().__init__()
        count, groups, self.size = heads
        self.q_proj = linear(width, count * self.size, bias=bias)
        self.k_proj = linear(width, groups * self.size, bias=bias)
        self.v_proj = linear(width, groups * self.size, bias=bias)
        self.o_proj = linear(count * self.size, hidden, bias=False)

    def by_head(self, x: Tensor) -> Tensor:
        """``[B, T, heads * size]`` to ``[B, heads, T, size]``."""
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)


def rotated(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding, halves paired ("neox"); cosines rounded to the type of ``x`` as in vLLM.

    Args:
        x: ``[..., size]``.
        positions: of each vector of ``x``; broadcast to ``[...]``.
        theta: the base.
    """
    size = x.shape[-1]
    frequencies = theta ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = positions.float()[..., None] * frequencies
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)
