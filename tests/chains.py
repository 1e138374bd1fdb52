"""One chain of drafts at a time, with a growing cache, as an engine drafts."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_av.training.autoregressive import OneLayerHead


def chain(
    drafter: OneLayerHead,
    ids: Tensor,
    features: Tensor,
    embedding: Tensor,
    steps: int,
    token: Callable[[Tensor], int],
) -> list[Tensor]:
    """What the head reads at each of ``steps``, each ``[H]``.

    Args:
        drafter: of one layer.
        ids: int64 ``[n + 1]``, verified; the last one's state is not known yet.
        features: ``[n, 4, H]``, the target's.
        embedding: ``[V, H]``.
        steps: how many drafts.
        token: the draft that what the head reads stands for.
    """
    states = drafter.states(features[None])
    embeds = F.embedding(ids[None, 1:], embedding)
    positions = torch.arange(len(features))[None]
    x, residual = drafter.joined(embeds, states)
    keys, values = drafter.attention.keys_and_values(x, positions)
    outs: list[Tensor] = []
    for step in range(steps):
        at = positions[:, -1:] + step
        if step:
            embeds = embedding[token(outs[-1])].view(1, 1, -1)
            x, residual = drafter.joined(embeds, states)
            key, value = drafter.attention.keys_and_values(x, at)
            keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        everything = torch.ones(1, 1, 1, keys.shape[2], dtype=torch.bool)
        read = drafter.attention(x[:, -1:], at, keys, values, everything)
        out, states = drafter.layer(read, residual[:, -1:])
        outs.append(out[0, 0])
    return outs
