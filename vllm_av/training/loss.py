"""The loss of every drafter: how far a draft distribution is from the target's.

With ``p`` the target's distribution, ``q = softmax(z)`` the draft's, a row's loss is
``CROSS_ENTROPY * CE + VARIATION * TV``, where ::

    cross-entropy    CE = -sum_i p_i log q_i          dCE/dz_j = q_j - p_j
    total variation  TV = 1 - sum_i min(p_i, q_i)     dTV/dz_j = q_j (sum_i q_i m_i - m_j)

and ``m_i`` is 1 where ``q_i < p_i``. ``1 - TV`` is the probability that a draft from ``q`` is
accepted at temperature 1. It has a gradient where ``CE`` has nearly none, and the other way round.
:func:`distance` has the gradient written out by hand, :func:`compared` leaves it to torch.

Rule: in :func:`distance` no ``[n, V]`` array outlives its chunk, and no graph is kept of any: at
6,144 tokens a batch's would take gigabytes. :func:`compared` keeps one of what it is given.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

CROSS_ENTROPY = 0.5
VARIATION = 1.0
CHUNK = 128  # rows; their [128, 6144] float32 arrays stay in the cache


@dataclass(frozen=True)
class Loss:
    """Of ``K`` draft steps, each weighted by its own row of weights.

    Args:
        gradient: of the weighted loss with respect to the drafts' hidden states; their shape and
            dtype.
        cross_entropy: float32 ``[K]``, weighted mean.
        acceptance: float32 ``[K]``, weighted mean of ``1 - TV``.
        agreement: float32 ``[K]``, weighted mean of "the most likely tokens are equal".
    """

    gradient: Tensor
    cross_entropy: Tensor
    acceptance: Tensor
    agreement: Tensor


def distance(
    drafts: Tensor,
    target: Tensor,
    weights: Tensor,
    head: Tensor,
    bias: Tensor | None = None,
) -> Loss:
    """The sum over ``k`` and ``n`` of ``weights[k, n]`` times a row's loss, and its gradient.

    Args:
        drafts: ``[K, n, H]``, hidden states whose product with ``head`` is the draft's logits; row
            ``n`` of each of the ``K`` draft steps aims at the same target distribution.
        target: ``[n, H]``, the target's, likewise.
        weights: float32 ``[K, n]``; zero where a step has no draft for that row.
        head: ``[V, H]``, rows of the output head: the distributions are over these ``V`` tokens.
        bias: float32 ``[V]``, added to both logits; makes a token stand for several.
    """
    drafts, target, head = drafts.detach(), target.detach(), head.detach()
    steps = len(drafts)
    gradient = torch.empty_like(drafts)
    sums = torch.zeros(3, steps, dtype=torch.float32)
    transposed = head.t()
    for start in range(0, target.shape[0], CHUNK):
        rows = slice(start, start + CHUNK)
        p_logits = _logits(target[rows], transposed, bias)
        best = p_logits.argmax(-1)
        p = p_logits.softmax(-1)
        for step in range(steps):
            weight = weights[step, rows]
            log_q = _logits(drafts[step, rows], transposed, bias).log_softmax(-1)
            sums[0, step] -= weight.dot((p * log_q).sum(-1))
            sums[2, step] += weight.dot((log_q.argmax(-1) == best).float())
            q = log_q.exp_()
            below = q < p
            sums[1, step] += weight.dot(torch.minimum(p, q).sum(-1))
            q_below = q * below
            slope = (q - p).mul_(CROSS_ENTROPY)
            slope.add_(q * q_below.sum(-1, keepdim=True), alpha=VARIATION)
            slope.sub_(q_below, alpha=VARIATION).mul_(weight[:, None])
            gradient[step, rows] = slope.to(head.dtype) @ head
    totals = weights.sum(-1).clamp_min(1e-9)
    means = sums / totals
    return Loss(gradient, *means.unbind())


def _logits(hidden: Tensor, transposed: Tensor, bias: Tensor | None) -> Tensor:
    logits = (hidden.to(transposed.dtype) @ transposed).float()
    return logits if bias is None else logits.add_(bias)


def compared(p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    """``CE`` and ``TV`` of each row, with their graph: ``[..., V]`` to two of ``[...]``."""
    return -(p * log_q).sum(-1), 0.5 * (p - log_q.exp()).abs().sum(-1)


def attach(hidden: Tensor, gradient: Tensor) -> Tensor:
    """A scalar whose gradient with respect to ``hidden`` is ``gradient``; its value has no meaning.

    Args:
        hidden: of any shape, with a graph.
        gradient: of the same shape, without one.
    """
    return (hidden.float() * gradient.float()).sum()
