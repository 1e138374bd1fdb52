"""What a trainer takes for the engine's drafts are the engine's drafts.

Each carried drafter that :mod:`vllm_av.training` trains on SmolLM2's states drafts greedily in the
engine, in float32; the trainer's module, with the same weights and the target's states by
transformers, drafts the same tokens.
"""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

from tests.chains import chain
from tests.engine.harness import STEPS, Engine, speculation
from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.drafter import carried, checkpoint
from vllm_av.training import dflash
from vllm_av.training.block import Backbone, Blocks, restore
from vllm_av.training.eagle import Eagle
from vllm_av.training.eagle3 import Eagle3
from vllm_av.training.features import HIDDEN, LAYERS

pytestmark = pytest.mark.full

Drafts = Callable[[list[int]], list[int]]
"""The drafts after a text whose last token the target has not read yet."""


class Chain:
    """A head that drafts a token a step.

    Args:
        head: the trainer's module.
        weights: the package's.
        features: of the target over the whole text, ``[n, 4, H]``.
        embedding: of the target, ``[V, H]``.
    """

    def __init__(
        self, head: Eagle | Eagle3, weights: dict[str, Tensor], features: Tensor, embedding: Tensor
    ) -> None:
        # Without a vocabulary of its own, a token has the number that it has in the target's.
        offsets = weights.pop("d2t", torch.zeros(len(embedding), dtype=torch.int64))
        head.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
        self._head, self._features, self._embedding = head, features, embedding
        self._tokens = torch.arange(len(offsets)) + offsets

    def __call__(self, text: list[int]) -> list[int]:
        read = self._features[: len(text) - 1]
        ids = torch.tensor(text)
        outs = chain(self._head, ids, read, self._embedding, STEPS, self._likeliest)
        return [self._likeliest(out) for out in outs]

    def _likeliest(self, out: Tensor) -> int:
        return int(self._tokens[(self._embedding[self._tokens] @ out).argmax()])


class Block:
    """A drafter of blocks: DSpark where the weights have a Markov head, else DFlash.

    Args:
        weights: the package's.
        features: of the target over the whole text, ``[n, 4, H]``.
        embedding: of the target, ``[V, H]``.
    """

    def __init__(self, weights: dict[str, Tensor], features: Tensor, embedding: Tensor) -> None:
        self._backbone = Backbone(dflash.SHAPE, torch.ones(len(LAYERS) * HIDDEN))
        restore(self._backbone, weights)
        self._streams, self._embedding = features[:, : len(LAYERS)].flatten(1), embedding
        self._tokens = torch.arange(len(weights["d2t"])) + weights["d2t"]
        self._markov = [
            weights[name].float()
            for name in ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight")
            if name in weights
        ]

    def __call__(self, text: list[int]) -> list[int]:
        anchor, place = text[-1], len(text) - 1
        blocks = Blocks(
            torch.tensor([0, place]),
            torch.tensor([[place]]),
            torch.tensor([[anchor]]),
            rows=STEPS if self._markov else 1 + STEPS,  # DSpark's anchor drafts too
        )
        states = self._backbone(self._streams[:place], blocks, self._embedding)[0, 0]
        drafts = [anchor]
        for row in states[-STEPS:] @ self._embedding[self._tokens].T:
            drafts.append(int(self._tokens[(row + self._bias(drafts[-1])).argmax()]))
        return drafts[1:]

    def _bias(self, previous: int) -> Tensor | float:
        """Of the Markov head, which knows the draft vocabulary alone: ``[draft vocabulary]``."""
        index = (self._tokens == previous).nonzero()
        if not self._markov or not len(index):
            return 0.0
        w1, w2 = self._markov
        return w2 @ w1[index[0, 0]]


DRAFTERS: dict[str, Callable[[dict[str, Tensor], Tensor, Tensor], Drafts]] = {
    "eagle": lambda *given: Chain(Eagle(), *given),
    "eagle3": lambda *given: Chain(Eagle3(), *given),
    "dflash": Block,
    "dspark": Block,
}


@pytest.mark.parametrize("name", DRAFTERS)
@torch.inference_mode()
def test_the_engine_drafts_what_training_drafts(
    name: str, target: str, prompts: list[list[int]]
) -> None:
    from safetensors.torch import load_file

    engine = Engine(target, speculation(str(checkpoint(name, smollm2())), name, adaptive=False))
    proposed = recorded(engine)
    prompt = prompts[0]
    text = prompt + engine.greedy([prompt], batch=1, max_tokens=40)[0]
    weights = load_file(carried(name) / "model.safetensors")
    drafts = DRAFTERS[name](weights, *states(target, text))
    compared = 0
    for known, found in verifications(proposed, text, len(prompt) + 1):
        assert drafts(text[:known]) == found
        compared += 1
    assert compared > 5


def recorded(engine: Engine) -> list[list[int]]:
    """The drafts of the only request, filled by what the engine proposes from now on."""
    proposed: list[list[int]] = []
    propose = engine.runner.speculator.propose

    def keep(*args: object, **kwargs: object) -> Tensor:
        drafts: Tensor = propose(*args, **kwargs)
        proposed.append(drafts[0].tolist())
        return drafts

    engine.runner.speculator.propose = keep
    return proposed


def verifications(
    proposed: Sequence[list[int]], text: list[int], known: int
) -> Iterator[tuple[int, list[int]]]:
    """How many tokens of ``text`` were known when each of the drafts was made, and the drafts."""
    for drafts in proposed:
        if known >= len(text):
            return
        yield known, drafts
        accepted = 0
        while accepted < STEPS and text[known : known + 1] == [drafts[accepted]]:
            known, accepted = known + 1, accepted + 1
        known += 1  # the target's own token


def states(target: str, text: list[int]) -> tuple[Tensor, Tensor]:
    """The target's ``[n, 4, H]`` over ``text``, and its embedding, float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).model.eval()
    found = model(torch.tensor([text]), output_hidden_states=True).hidden_states
    kept = [*(found[layer] for layer in LAYERS), found[-1]]
    return torch.stack(kept, 2)[0], model.embed_tokens.weight.detach()
