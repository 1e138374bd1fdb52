"""What a trainer takes for the engine's blocks are the engine's blocks.

The package's DFlash and DSpark drafters draft greedily in the engine, in float32; the trainer's
module, with the same weights and the target's states by transformers, drafts the same tokens.
"""

import pytest
import torch
from torch import Tensor

from tests.engine.harness import STEPS, Engine, speculation
from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.drafter import carried, checkpoint
from vllm_av.training import dflash, dspark
from vllm_av.training.block import Backbone, Blocks, restore
from vllm_av.training.features import HIDDEN, LAYERS

pytestmark = pytest.mark.full


@pytest.mark.parametrize("name", [n for n in ("dflash", "dspark") if carried(n).exists()])
@torch.inference_mode()
def test_a_block_in_the_engine_is_the_one_in_training(
    name: str, target: str, prompts: list[list[int]]
) -> None:
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
    drafter = _Drafter(name, target, text)
    known, compared = len(prompt) + 1, 0
    for drafts in proposed:
        if known >= len(text):
            break
        assert drafter.block(known) == drafts
        compared += 1
        accepted = 0
        while accepted < STEPS and text[known : known + 1] == [drafts[accepted]]:
            known, accepted = known + 1, accepted + 1
        known += 1
    assert compared > 5


class _Drafter:
    """The package's drafter by the trainer's module, over one text."""

    def __init__(self, name: str, target: str, text: list[int]) -> None:
        from safetensors.torch import load_file

        weights = load_file(carried(name) / "model.safetensors")
        self._weights = {key: value.float() for key, value in weights.items()}
        self._tokens = torch.arange(len(weights["d2t"])) + weights["d2t"]
        self._backbone = Backbone(dflash.SHAPE, torch.ones(len(LAYERS) * HIDDEN))
        restore(self._backbone, weights)
        self._text = text
        self._streams, self._embedding = _target(target, text)
        self._anchor_drafts = name == "dspark"

    def block(self, known: int) -> list[int]:
        """Greedy drafts after the first ``known`` tokens of the text; the last is the anchor."""
        anchor = self._text[known - 1]
        blocks = Blocks(
            torch.tensor([0, known - 1]),
            torch.tensor([[known - 1]]),
            torch.tensor([[anchor]]),
            rows=STEPS + (not self._anchor_drafts),
        )
        states = self._backbone(self._streams[: known - 1], blocks, self._embedding)[0, 0]
        logits = states[-STEPS:] @ self._embedding[self._tokens].T
        drafts = [anchor]
        for row in logits:
            best = (row + self._markov(drafts[-1])).argmax()
            drafts.append(int(self._tokens[best]))
        return drafts[1:]

    def _markov(self, previous: int) -> Tensor | float:
        index = (self._tokens == previous).nonzero()
        if not self._anchor_drafts or not len(index):
            return 0.0
        w1, w2 = (self._weights[f"markov_head.markov_w{n}.weight"] for n in (1, 2))
        assert w1.shape[1] == dspark.RANK
        return w2 @ w1[index[0, 0]]


def _target(target: str, text: list[int]) -> tuple[Tensor, Tensor]:
    """Its residual streams ``[n, 3 H]`` over ``text``, and its embedding, float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).model.eval()
    states = model(torch.tensor([text]), output_hidden_states=True).hidden_states
    return torch.cat([states[layer][0] for layer in LAYERS], -1), model.embed_tokens.weight.detach()
