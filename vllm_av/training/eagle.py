"""The EAGLE head: ``fc`` over (token's embedding, target's final state), then one Llama layer.

vLLM's ``EagleLlamaForCausalLM``: the layer's input norm is left out, nothing follows the layer,
and what it puts out is both what the target's whole output head reads and the next step's state.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from vllm_av.training.autoregressive import HIDDEN, Attention, Drafter, Mlp, Norm
from vllm_av.training.heads import Plan, train
from vllm_av.training.schedule import Schedule

INTERMEDIATE = 1152  # 7.1 MB in all


class Layer(nn.Module):
    """Attention and MLP over a residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = Attention(HIDDEN)
        self.post_attention_layernorm = Norm()
        self.mlp = Mlp(INTERMEDIATE)


class Eagle(Drafter):
    """See the module's head."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.layers = nn.ModuleList([Layer()])
        with torch.no_grad():
            # Start near "the next state is this one": much of a text's state lasts.
            self.fc.weight.mul_(0.3)
            self.fc.weight[:, HIDDEN:] += 0.8 * torch.eye(HIDDEN)
            self._layer.self_attn.o_proj.weight.mul_(0.3)
            self._layer.mlp.down_proj.weight.mul_(0.3)

    @property
    def _layer(self) -> Layer:
        layer = self.layers[0]
        assert isinstance(layer, Layer)
        return layer

    @property
    def attention(self) -> Attention:
        return self._layer.self_attn

    def states(self, features: Tensor) -> Tensor:
        return features[..., 3, :]

    def joined(self, embeds: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        x = self.fc(torch.cat([embeds, states], -1))
        return x, x

    def layer(self, read: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        residual = residual + read
        out = residual + self._layer.mlp(self._layer.post_attention_layernorm(residual))
        return out, out


def config(target: dict[str, object]) -> dict[str, object]:
    """The checkpoint's ``config.json``, from the target's."""
    return target | {"num_hidden_layers": 1, "intermediate_size": INTERMEDIATE}


PLAN = Plan(
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
