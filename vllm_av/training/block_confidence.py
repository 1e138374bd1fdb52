"""Fits DSpark's confidence head: the probability that a position's draft is accepted.

What it should say is known for each row, not only drawn: sum of min(p, q) over the whole vocabulary
at temperature 1, and whether the most likely tokens agree at temperature 0. Rows weigh by how
probable it is that the engine gets to them (:func:`vllm_av.training.block_loss.reach`), so that the
head is right on the average over what the engine sees of each kind of text.

Rule: a logistic regression has one optimum, and Newton's steps find it: no rate, no schedule.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vllm_av.training.block_batches import POSITIONS, BlockBatch, BlockBatches, BlockPlan
from vllm_av.training.block_learner import BlockDrafter
from vllm_av.training.block_loss import reach
from vllm_av.training.data import Corpus

_CHUNK = 128  # rows: each has the whole vocabulary
_LEAST_REACH = 0.01
_RIDGE = 1e-4  # a row's share of weight, on each squared coefficient
_NEWTON_STEPS = 12


@dataclass(frozen=True)
class Rows:
    """What the head is fitted to: ``n`` rows.

    Attributes:
        inputs: float32 ``[n, width]``, what drafts the rows' positions.
        labels: float32 ``[n]``, probability of acceptance.
        weights: float32 ``[n]``, probability that the position is reached.
        position: int64 ``[n]``, from 0.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor
    position: Tensor


def fit(
    drafter: BlockDrafter, batches: BlockBatches, plan: BlockPlan, corpus: Corpus
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The head's weights as vLLM names them, bfloat16, and what ``training.json`` says of it."""
    rows = collect(drafter, batches, plan, corpus)
    weight, bias = regress(rows)
    said = torch.sigmoid(rows.inputs @ weight + bias)
    told = {
        "rows": len(rows.labels),
        "reached_rows": round(rows.weights.sum().item()),
        "said": _by_position(rows, said),
        "true": _by_position(rows, rows.labels),
    }
    return {
        "confidence_head.proj.weight": weight[None].to(torch.bfloat16),
        "confidence_head.proj.bias": bias[None].to(torch.bfloat16),
    }, told


def collect(drafter: BlockDrafter, batches: BlockBatches, plan: BlockPlan, corpus: Corpus) -> Rows:
    """The rows of ``plan.steps`` batches that the engine may reach.

    Args:
        drafter: trained.
        batches: of ``plan``.
        plan: how many steps.
        corpus: what the batches are of.
    """
    parts = []
    for step in range(plan.steps):
        batch = batches[step]
        with torch.no_grad():
            states, _, head = drafter.states(batch)
        reached = reach(states, head, batch)
        taken = batch.valid & (reached > _LEAST_REACH)
        labels = acceptance(states[taken], head, batch, taken, corpus)
        position = torch.arange(taken.shape[1]).expand_as(taken)[taken]
        parts.append((states[taken].float(), labels, reached[taken], position))
    return Rows(*(torch.cat(column) for column in zip(*parts, strict=True)))


def acceptance(
    states: Tensor, head: Tensor, batch: BlockBatch, taken: Tensor, corpus: Corpus
) -> Tensor:
    """Probability that the target accepts a draft of each row ``taken``: float32 ``[n]``.

    Args:
        states: ``[n, width]``.
        head: ``[draft vocabulary, width]``.
        batch: the rows' batch.
        taken: bool ``[B, positions]``, with ``n`` true ones.
        corpus: what the batch is of.
    """
    places, greedy = batch.places[taken], batch.greedy[taken]
    found = torch.empty(len(states))
    for start in range(0, len(states), _CHUNK):
        part = slice(start, start + _CHUNK)
        target = (batch.streams[places[part], -1] @ corpus.embedding.T).float()
        draft = (states[part] @ head.T).float()
        agreed = corpus.vocabulary[draft.argmax(-1)] == target.argmax(-1)
        p = target.softmax(-1)[:, corpus.vocabulary]
        common = torch.minimum(p, draft.softmax(-1)).sum(-1)
        found[part] = torch.where(greedy[part], agreed.float(), common)
    return found


def regress(rows: Rows) -> tuple[Tensor, Tensor]:
    """The logistic regression of the labels: float32 ``[width]`` and a scalar."""
    inputs = torch.cat([rows.inputs, torch.ones(len(rows.inputs), 1)], dim=-1)
    share = rows.weights / rows.weights.sum()
    ridge = torch.full((inputs.shape[-1],), _RIDGE)
    ridge[-1] = 0.0  # the mean is free
    found = torch.zeros(inputs.shape[-1])
    for _ in range(_NEWTON_STEPS):
        said = torch.sigmoid(inputs @ found)
        slope = inputs.T @ (share * (said - rows.labels)) + ridge * found
        bend = (inputs * (share * said * (1 - said))[:, None]).T @ inputs
        bend.diagonal().add_(ridge)
        found = found - torch.linalg.solve(bend.double(), slope.double()).float()
    return found[:-1], found[-1]


def _by_position(rows: Rows, values: Tensor) -> list[float | None]:
    """Weighted mean of ``values`` at each position; ``None`` where no row was reached."""
    means: list[float | None] = []
    for k in range(POSITIONS):
        here = rows.position == k
        weight = rows.weights[here].sum().item()
        total = (values * rows.weights)[here].sum().item()
        means.append(round(total / weight, 4) if weight else None)
    return means
