"""Trains a block drafter, step by step, and goes on where a killed run stopped.

Rule: the weights after step n are a function of the corpus, the plan and the starting weights: the
batches are (:mod:`vllm_av.training.block_batches`), the learning rate follows the step's number,
one thread computes, and a saved state holds all that a step leaves behind.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vllm_av.training import reading
from vllm_av.training.block_batches import POSITIONS, BlockBatches, BlockPlan
from vllm_av.training.block_learner import BlockDrafter, learn
from vllm_av.training.schedule import Schedule
from vllm_av.training.whole import require, write_state

_SAVED_EVERY = 100  # steps
_TOLD_EVERY = 50
_SMOOTHING = 0.98  # of the figures told


@dataclass
class Curve:
    """Smoothed figures of a run.

    Attributes:
        loss: mean loss of a row.
        acceptance: of the rows of each position, on the text that is trained on.
    """

    loss: float = math.nan
    acceptance: list[float] = field(default_factory=lambda: [math.nan] * POSITIONS)

    def add(self, loss: float, acceptance: Tensor) -> None:
        """Take one step's figures in, as :func:`vllm_av.training.block_learner.learn` has them."""
        self.loss = _smoothed(self.loss, loss)
        pairs = zip(self.acceptance, acceptance.tolist(), strict=True)
        self.acceptance = [_smoothed(old, new) for old, new in pairs]


def train(
    drafter: BlockDrafter,
    batches: BlockBatches,
    plan: BlockPlan,
    target_head: Tensor,
    state: Path,
    wanted: str,
) -> dict[str, Any]:
    """Take the plan's steps.

    Args:
        drafter: with its first weights.
        batches: of the plan.
        plan: of the run.
        target_head: bfloat16 ``[draft vocabulary, hidden]``.
        state: the file that a stopped run left, or leaves.
        wanted: digest of all that the run is made from.

    Returns:
        What ``training.json`` says of the run.

    Raises:
        TrainingError: ``AV-TRAINING-WORK`` if another run left ``state``.
    """
    parameters = [p for p in drafter.module.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.02},
            {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.97),
        fused=True,
    )
    schedule = Schedule(plan.steps, plan.rate, plan.warmup)
    curve, done = Curve(), 0
    if state.exists():
        saved = reading.state(state, dict)
        require(saved.get("digest"), wanted, state)
        drafter.module.load_state_dict(saved["module"])
        optimiser.load_state_dict(saved["optimiser"])
        curve, done = Curve(**saved["curve"]), saved["done"]
    for step in range(done, plan.steps):
        for group in optimiser.param_groups:
            group["lr"] = schedule.learning_rate(step)
        curve.add(*learn(drafter, batches[step], plan, target_head))
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        if (step + 1) % _TOLD_EVERY == 0:
            told = " ".join(f"{value:.3f}" for value in curve.acceptance)
            print(f"step {step + 1}/{plan.steps}: loss {curve.loss:.3f}, {told}", flush=True)
        if (step + 1) % _SAVED_EVERY == 0 or step + 1 == plan.steps:
            _save(drafter, optimiser, curve, step + 1, wanted, state)
    return {
        "digest": wanted,
        "steps": plan.steps,
        "texts_per_step": plan.texts,
        "anchors_per_text": plan.anchors,
        "learning_rate": plan.rate,
        "widths": list(plan.widths),
        "anchor": plan.anchor,
        "unreached": plan.unreached,
        "decay": plan.decay,
        "seed": plan.seed,
        "loss": round(curve.loss, 4),
        # A position that no step had a row for has no figure, and JSON has no nan.
        "acceptance_on_training_text": [
            None if math.isnan(value) else round(value, 4) for value in curve.acceptance
        ],
    }


def _save(
    drafter: BlockDrafter,
    optimiser: torch.optim.Optimizer,
    curve: Curve,
    done: int,
    wanted: str,
    state: Path,
) -> None:
    kept = {
        "module": drafter.module.state_dict(),
        "optimiser": optimiser.state_dict(),
        "curve": vars(curve),
        "done": done,
        "digest": wanted,
    }
    write_state(state, kept)


def _smoothed(old: float, new: float) -> float:
    if math.isnan(new):
        return old
    return new if math.isnan(old) else _SMOOTHING * old + (1 - _SMOOTHING) * new
