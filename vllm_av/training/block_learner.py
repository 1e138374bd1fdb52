"""One training step of a block drafter: which rows count, their loss, their gradients.

Rule: a row takes part in a step with the probability that is its weight. What the engine seldom
asks for costs seldom.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from vllm_av.training.block_batches import POSITIONS, BlockBatch, BlockPlan
from vllm_av.training.block_loss import distil, reach


class BlockDrafter(Protocol):
    """A block drafter: DFlash's or DSpark's."""

    @property
    def module(self) -> nn.Module:
        """What is trained."""
        ...

    def states(self, batch: BlockBatch) -> tuple[Tensor, Tensor, Tensor]:
        """What drafts each position, what the anchors know, and the head that reads both.

        Returns:
            States ``[B, positions, width]``; those of the anchors' rows, ``[B, width]``, where they
            draft nothing, else ``[0, width]``; and the head ``[draft vocabulary, width]``, of which
            some last columns may be trained. All bfloat16, with their graphs.
        """
        ...


def learn(
    drafter: BlockDrafter, batch: BlockBatch, plan: BlockPlan, target_head: Tensor
) -> tuple[float, Tensor]:
    """Add the gradients of one batch.

    Args:
        drafter: in training.
        batch: of the step.
        plan: of the run.
        target_head: bfloat16 ``[draft vocabulary, hidden]``.

    Returns:
        Mean loss of the rows that took part, and float32 ``[POSITIONS]``: their mean acceptance at
        temperature 1, nan where a position had none.
    """
    states, anchors, head = drafter.states(batch)
    taken = weights(reach(states.detach(), head.detach(), batch), plan) > batch.draw
    taken &= batch.valid
    beside = batch.valid[: len(anchors), 0] & (batch.draw[: len(anchors), -1] < plan.anchor)
    rows = torch.cat([states[taken], anchors[beside]])
    places = torch.cat([batch.places[taken], batch.places[: len(anchors), 0][beside]])
    learnt = distil(
        rows.detach(),
        head.detach(),
        batch.streams[places, -1],
        target_head,
        torch.full((len(rows),), 1 / len(rows)),
        trained=head.shape[-1] - target_head.shape[-1],
    )
    roots, gradients = [rows], [learnt.states]
    if head.requires_grad:
        fixed = torch.zeros_like(target_head)
        roots.append(head)
        gradients.append(torch.cat([fixed, learnt.head.to(fixed.dtype)], dim=-1))
    torch.autograd.backward(roots, gradients)
    position = torch.arange(taken.shape[1]).expand_as(taken)[taken]
    drafts = learnt.acceptance[: len(position)]
    means = [drafts[position == k].mean() for k in range(POSITIONS)]
    return learnt.loss, torch.stack(means)


def weights(reached: Tensor, plan: BlockPlan) -> Tensor:
    """Of each position in the loss: ``[B, positions]``, as ``reached`` is."""
    everywhere = plan.decay ** torch.arange(reached.shape[-1], dtype=torch.float32)
    return plan.unreached * everywhere + (1 - plan.unreached) * reached
