"""The EAGLE head: ``fc`` over (token's embedding, target's final state), then one Llama layer.

vLLM's ``EagleLlamaForCausalLM``: the layer's input norm is left out, nothing follows the layer,
and what it puts out is both what the target's whole output head reads and the next step's state.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from vllm_av.training.autoregressive import HIDDEN, Layer, OneLayerHead
from vllm_av.training.heads import HeadPlan, train
from vllm_av.training.schedule import Schedule

INTERMEDIATE = 1152  # 7.1 MB in all


class Eagle(OneLayerHead):
    """See the module's head."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.layers = nn.ModuleList([Layer(HIDDEN, INTERMEDIATE)])
        self.start()

    def states(self, features: Tensor) -> Tensor:
        return features[..., 3, :]

    def joined(self, embeds: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        x = self.fc(torch.cat([embeds, states], -1))
        return x, x

    def layer(self, read: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        out = self.only_layer(read, residual)
        return out, out


def config(target: dict[str, object]) -> dict[str, object]:
    """The checkpoint's ``config.json``, from the target's."""
    return target | {"num_hidden_layers": 1, "intermediate_size": INTERMEDIATE}


PLAN = HeadPlan(
    name="smollm2-eagle",
    drafter=Eagle,
    config=config,
    reduced=False,
    state_weight=0.2,
    schedule=Schedule(steps=1600, peak=1.5e-3, rollout=(1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4)),
)


def run(work: Path) -> None:
    """Train the head into ``work/smollm2-eagle``."""
    train(work, PLAN)
