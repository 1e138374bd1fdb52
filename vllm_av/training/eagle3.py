"""The EAGLE-3 head: three of the target's states through ``fc``, one layer, a reduced vocabulary.

vLLM's ``Eagle3LlamaForCausalLM``: the layer attends over (norm of the token's embedding, norm of
the state), the state itself is the residual stream, a norm stands before the head; the next
step's state is what went into that norm. ``fc_norm`` gives each of the target's states a norm of
its own: they differ in scale by orders of magnitude.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from vllm_av.training.autoregressive import EPSILON, HIDDEN, Layer, OneLayerHead
from vllm_av.training.data import REDUCED, target_tensor
from vllm_av.training.features import LAYERS
from vllm_av.training.heads import HeadPlan, train
from vllm_av.training.layers import Norm
from vllm_av.training.schedule import Schedule

INTERMEDIATE = 896  # 8.0 MB in all


class Norms(nn.Module):
    """A norm of the token's embedding and one of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = Norm(HIDDEN, EPSILON)
        self.hidden_norm = Norm(HIDDEN, EPSILON)


# The norms are a base, so that their parameters come before Layer's: the norm of all gradients is
# summed in the order of the parameters, and on it depend the last bits of what is trained.
class JoinedLayer(Layer, Norms):
    """A layer whose attention reads two inputs, each with a norm of its own."""

    def __init__(self) -> None:
        super().__init__(2 * HIDDEN, INTERMEDIATE)

    def joined(self, embeds: Tensor, states: Tensor) -> Tensor:
        """``[..., H]`` and ``[..., H]`` to ``[..., 2 H]``."""
        return torch.cat([self.input_layernorm(embeds), self.hidden_norm(states)], -1)


class Eagle3(OneLayerHead):
    """See the module's head."""

    def __init__(self) -> None:
        super().__init__()
        self.fc_norm = nn.ModuleList([Norm(HIDDEN, EPSILON) for _ in LAYERS])
        self.fc = nn.Linear(len(LAYERS) * HIDDEN, HIDDEN, bias=False)
        self.layers = nn.ModuleList([JoinedLayer()])
        self.norm = Norm(HIDDEN, EPSILON)
        self.start()

    def states(self, features: Tensor) -> Tensor:
        normed = [norm(features[..., row, :]) for row, norm in enumerate(self.fc_norm)]
        out: Tensor = self.fc(torch.cat(normed, -1))
        return out

    def joined(self, embeds: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.only_layer
        assert isinstance(layer, JoinedLayer)
        return layer.joined(embeds, states), states

    def layer(self, read: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        residual = self.only_layer(read, residual)
        return self.norm(residual), residual


def started() -> Eagle3:
    """A head whose last norm is the target's: its logits begin at the right scale."""
    head = Eagle3()
    with torch.no_grad():
        head.norm.weight.copy_(target_tensor("model.norm.weight"))
    return head


def config(target: dict[str, object]) -> dict[str, object]:
    """The checkpoint's ``config.json``, from the target's."""
    return target | {
        "architectures": ["Eagle3LlamaForCausalLM"],
        "num_hidden_layers": 1,
        "intermediate_size": INTERMEDIATE,
        "draft_vocab_size": REDUCED,
        "tie_word_embeddings": False,
        "fc_norm": True,
        "norm_before_residual": False,
        # vLLM reads the layers here, and their number below.
        "eagle_aux_hidden_state_layer_ids": list(LAYERS),
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": list(LAYERS),
        },
    }


PLAN = HeadPlan(
    name="smollm2-eagle3",
    drafter=started,
    config=config,
    reduced=True,
    state_weight=0.0,
    schedule=Schedule(steps=1600, peak=2e-3, rollout=(1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4)),
)


def run(work: Path) -> None:
    """Train the head into ``work/smollm2-eagle3``."""
    train(work, PLAN)
