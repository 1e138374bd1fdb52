"""What a trainer takes for the engine's drafts are the engine's drafts.

The heads of the package draft greedily in the engine, in float32; the trainer's module, with the
same weights and the target's states by transformers, drafts the same tokens.
"""

import pytest
import torch
from torch import Tensor

from tests.chains import chain
from tests.engine.harness import STEPS, Engine, speculation
from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.drafter import carried, checkpoint
from vllm_av.training.autoregressive import Drafter
from vllm_av.training.eagle import Eagle
from vllm_av.training.eagle3 import Eagle3
from vllm_av.training.features import LAYERS

pytestmark = pytest.mark.full

HEADS = {"eagle": Eagle, "eagle3": Eagle3}


@pytest.mark.parametrize("name", [name for name in HEADS if carried(name).exists()])
@torch.inference_mode()
def test_a_head_drafts_in_the_engine_what_it_drafts_in_training(
    name: str, target: str, prompts: list[list[int]]
) -> None:
    drafter, tokens = _loaded(name, HEADS[name]())
    engine = Engine(target, speculation(str(checkpoint(name, smollm2())), name, adaptive=False))
    proposed: list[list[int]] = []
    propose = engine.runner.speculator.propose

    def recorded(*args: object, **kwargs: object) -> Tensor:
        drafts = propose(*args, **kwargs)
        proposed.append(drafts[0].tolist())
        return drafts

    engine.runner.speculator.propose = recorded
    prompt = prompts[0]
    text = prompt + engine.greedy([prompt], batch=1, max_tokens=40)[0]
    features, embedding = _target(target, text)
    head = embedding[tokens]

    def likeliest(out: Tensor) -> int:
        return int(tokens[(head @ out).argmax()])

    known, compared = len(prompt) + 1, 0
    for drafts in proposed:
        if known >= len(text):
            break
        ids = torch.tensor(text[:known])
        outs = chain(drafter, ids, features[: known - 1], embedding, STEPS, likeliest)
        assert [likeliest(out) for out in outs] == drafts
        compared += 1
        accepted = 0
        while accepted < STEPS and text[known : known + 1] == [drafts[accepted]]:
            known, accepted = known + 1, accepted + 1
        known += 1
    assert compared > 5


def _loaded(name: str, drafter: Drafter) -> tuple[Drafter, Tensor]:
    """The package's head, and the target's number of each token that it drafts."""
    from safetensors.torch import load_file

    weights = load_file(carried(name) / "model.safetensors")
    offsets = weights.pop("d2t", torch.zeros(49152, dtype=torch.int64))
    drafter.load_state_dict({key: value.float() for key, value in weights.items()})
    return drafter, torch.arange(len(offsets)) + offsets


def _target(target: str, text: list[int]) -> tuple[Tensor, Tensor]:
    """Its states ``[n, 4, H]`` over ``text``, and its embedding, float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).model.eval()
    states = model(torch.tensor([text]), output_hidden_states=True).hidden_states
    kept = [*(states[layer] for layer in LAYERS), states[-1]]
    return torch.stack(kept, 2)[0], model.embed_tokens.weight
