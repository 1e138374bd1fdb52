"""A training loop of a fixed number of steps that a killed run takes up again.

Matrices inside the model take Muon's step (orthogonalised momentum), everything else AdamW's. The
rate rises over the first steps, stays, and falls to zero over the last part.

Rule: a step's data and randomness are functions of the step's number alone, so that a run that was
killed and taken up again ends with the same weights.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vllm_av.training import reading
from vllm_av.training.whole import require, write_state

_SAVE_EVERY = 200  # steps
_SAY_EVERY = 50


@dataclass(frozen=True)
class LoopPlan:
    """How long and how fast.

    Args:
        steps: how many.
        matrix_rate: Muon's rate, for the matrices between embedding and head.
        rate: AdamW's rate, for the rest.
        falling: part of the steps, at the end, over which both fall to zero.
        rising: steps, at the beginning, over which they rise.
    """

    steps: int
    matrix_rate: float
    rate: float
    falling: float = 0.5
    rising: int = 50

    def factor(self, step: int) -> float:
        """What the rates are multiplied by at ``step``, counted from 0."""
        return min(1.0, (step + 1) / self.rising) * min(
            1.0, (self.steps - step) / (self.falling * self.steps)
        )


def train(
    named: Iterable[tuple[str, nn.Parameter]],
    loss: Callable[[int], tuple[Tensor, dict[str, float]]],
    plan: LoopPlan,
    state: Path,
    wanted: str,
    say: Callable[[str], None] = print,
) -> dict[str, float]:
    """Train the parameters ``named`` in place; the rest of the model is left as it is.

    Args:
        named: the parameters with their names.
        loss: from a step's number, the loss and figures to show.
        plan: steps and rates.
        state: file that holds parameters and optimisers between runs.
        wanted: digest of all that the run is made from.
        say: takes a line now and then.

    Returns:
        The figures, each smoothed over about the last 100 steps.

    Raises:
        TrainingError: ``AV-TRAINING-WORK`` if another run left ``state``.
    """
    parameters = dict(named)
    matrices = [each for name, each in parameters.items() if _is_inner_matrix(name, each)]
    others = [each for name, each in parameters.items() if not _is_inner_matrix(name, each)]
    optimisers: list[tuple[torch.optim.Optimizer, float]] = [
        (torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0), plan.rate)
    ]
    if matrices:
        muon = torch.optim.Muon(matrices, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
        optimisers.append((muon, plan.matrix_rate))
    done, figures = _taken_up(state, wanted, parameters, optimisers)
    for step in range(done, plan.steps):
        torch.manual_seed(step)
        value, shown = loss(step)
        value.backward()
        nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        for optimiser, rate in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate * plan.factor(step)
            optimiser.step()
            optimiser.zero_grad()
        for name, figure in shown.items():
            figures[name] = 0.99 * figures.get(name, figure) + 0.01 * figure
        if (step + 1) % _SAY_EVERY == 0:
            say(f"{step + 1}/{plan.steps} " + " ".join(f"{n} {f:.3f}" for n, f in figures.items()))
        if (step + 1) % _SAVE_EVERY == 0 or step + 1 == plan.steps:
            _keep(state, wanted, step + 1, parameters, optimisers, figures)
    return figures


def _is_inner_matrix(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim == 2 and "embed_tokens" not in name


def _taken_up(
    state: Path,
    wanted: str,
    parameters: dict[str, nn.Parameter],
    optimisers: list[tuple[torch.optim.Optimizer, float]],
) -> tuple[int, dict[str, float]]:
    if not state.exists():
        return 0, {}
    kept: dict[str, Any] = reading.state(state, dict)
    require(kept.get("digest"), wanted, state)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(kept["parameters"][name])
    for (optimiser, _), each in zip(optimisers, kept["optimisers"], strict=True):
        optimiser.load_state_dict(each)
    return int(kept["step"]), dict(kept["figures"])


def _keep(
    state: Path,
    wanted: str,
    step: int,
    parameters: dict[str, nn.Parameter],
    optimisers: list[tuple[torch.optim.Optimizer, float]],
    figures: dict[str, float],
) -> None:
    kept = {
        "digest": wanted,
        "step": step,
        "figures": figures,
        "parameters": {name: each.detach() for name, each in parameters.items()},
        "optimisers": [optimiser.state_dict() for optimiser, _ in optimisers],
    }
    write_state(state, kept)
