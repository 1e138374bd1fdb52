"""What a block drafter learns: the target's own distribution after the true prefix.

The loss of a row is the one of :mod:`vllm_av.training.loss`, over the reduced vocabulary.

Rule: gradients are made by hand, chunk by chunk, so that no ``[rows, vocabulary]`` graph is kept.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vllm_av.training.block_batches import BlockBatch
from vllm_av.training.loss import CROSS_ENTROPY, VARIATION

_CHUNK = 256  # rows: more of them leave the processor's cache


@dataclass(frozen=True)
class Distilled:
    """Of ``n`` rows: what their states should become, and how good they are.

    Attributes:
        states: gradient by the rows' states, as those, ``[n, width]``.
        head: gradient by the last ``trained`` columns of the head, float32 ``[vocabulary,
            trained]``.
        acceptance: float32 ``[n]``, sum of min(p, q).
        loss: weighted sum of the rows' losses; its gradients are the ones above.
    """

    states: Tensor
    head: Tensor
    acceptance: Tensor
    loss: float


def distil(
    states: Tensor,
    head: Tensor,
    wanted: Tensor,
    target_head: Tensor,
    weights: Tensor,
    trained: int = 0,
) -> Distilled:
    """Compare the rows' distributions with the target's; no argument has a graph.

    Args:
        states: ``[n, width]``; q is the softmax of ``states @ head.T``.
        head: ``[vocabulary, width]``.
        wanted: ``[n, hidden]``, the target's states, final norm applied; p is the softmax of
            ``wanted @ target_head.T``.
        target_head: ``[vocabulary, hidden]``.
        weights: float32 ``[n]``, of each row in the loss.
        trained: how many of ``head``'s last columns want a gradient.
    """
    gradient, acceptance = torch.empty_like(states), torch.empty(len(states))
    head_gradient = torch.zeros(len(head), trained)
    loss = 0.0
    for start in range(0, len(states), _CHUNK):
        part = slice(start, start + _CHUNK)
        p = (wanted[part] @ target_head.T).float().softmax(-1)
        log_q = (states[part] @ head.T).float().log_softmax(-1)
        q = log_q.exp()
        lower = q < p
        missing = q * lower
        below = missing.sum(-1, keepdim=True)  # what q has where it is the smaller one
        acceptance[part] = 1 - (p * lower).sum(-1) + below[:, 0]
        crossed = -torch.einsum("nv,nv->n", p, log_q)
        row_loss = CROSS_ENTROPY * crossed + VARIATION * (1 - acceptance[part])
        loss += float(row_loss @ weights[part])
        # As in loss.distance, whose terms are added in another order: the last bits of what was
        # trained depend on it.
        slope = (q * below).sub_(missing).mul_(VARIATION).add_(q.sub_(p), alpha=CROSS_ENTROPY)
        slope = slope.mul_(weights[part, None]).to(states.dtype)
        gradient[part] = slope @ head
        if trained:
            head_gradient += (slope.T @ states[part, -trained:]).float()
    return Distilled(gradient, head_gradient, acceptance, loss)


def reach(states: Tensor, head: Tensor, batch: BlockBatch) -> Tensor:
    """Probability that the drafts before each position are accepted: float32 ``[B, positions]``.

    A draft is drawn from q and kept with probability min(1, p/q); of the target's texts, the ones
    that go through accepted drafts are those whose tokens x weigh min(1, q(x) / p(x)). At
    temperature 0 the draft must be the text's own token. Positions weighted so are the ones that
    the engine asks for, which are easier than the average: the text was easy up to them.

    Args:
        states: ``[B, positions, width]``.
        head: ``[vocabulary, width]``.
        batch: the blocks that the states are of.
    """
    kept = torch.empty(batch.places.shape).flatten()
    flat, wanted = states.flatten(0, 1), batch.wanted.flatten()
    likelihood, greedy = batch.likelihood.flatten(), batch.greedy.flatten()
    for start in range(0, len(flat), _CHUNK):
        part = slice(start, start + _CHUNK)
        logits = (flat[part] @ head.T).float()
        chosen = logits.gather(-1, wanted[part, None].clamp_min(0))[:, 0]
        ratio = (chosen - logits.logsumexp(-1)).exp() / likelihood[part].clamp_min(1e-9)
        best = (chosen >= logits.amax(-1)).float()
        kept[part] = torch.where(greedy[part], best, ratio.clamp_max(1.0))
    kept = torch.where(wanted < 0, 0.0, kept).view_as(batch.places)
    return torch.cat([torch.ones(len(kept), 1), kept[:, :-1].cumprod(-1)], dim=-1)
