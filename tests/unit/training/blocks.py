"""A corpus of eight short texts of random tokens, for the tests of the block drafters."""

import torch

from vllm_av.training.block import MASK_TOKEN, Backbone, Shape
from vllm_av.training.data import Corpus
from vllm_av.training.dspark import DSpark, Heads

VOCABULARY, REDUCED, HIDDEN = MASK_TOKEN + 16, 20, 16
SHAPE = Shape(layers=1, intermediate=24, target_layers=(0, 1, 2), hidden=HIDDEN, heads=2,
              kv_heads=1, head_dim=8)  # fmt: skip


def corpus() -> Corpus:
    """Texts of 14 to 21 tokens with prompts of 4; the last is held out, every other is greedy."""
    torch.manual_seed(5)
    lengths = [14 + number for number in range(8)]
    offsets = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    embedding = torch.randn(VOCABULARY, HIDDEN)
    ids = torch.randint(VOCABULARY, (offsets[-1],))
    features = torch.randn(offsets[-1], 4, HIDDEN)
    # The first stream tells the next token, and the target is rather sure of it.
    features[:, 0] = embedding[ids.roll(-1)]
    features[:, -1] = embedding[ids.roll(-1)] / 2
    return Corpus(
        ids=ids,
        offsets=offsets,
        prompt_lengths=[4] * 8,
        workload=["code"] * 8,
        temperature=[1.0, 0.0] * 4,
        held_out=[False] * 7 + [True],
        features=features,
        embedding=embedding,
        vocabulary=torch.randperm(VOCABULARY)[:REDUCED].sort().values,
    )


def backbone() -> Backbone:
    """One with random weights."""
    torch.manual_seed(6)
    return Backbone(SHAPE, torch.ones(3 * HIDDEN))


def dspark() -> DSpark:
    """A DSpark drafter of the corpus, with random weights."""
    texts = corpus()
    reduced = torch.full((VOCABULARY,), -1)
    reduced[texts.vocabulary] = torch.arange(REDUCED)
    head = texts.embedding[texts.vocabulary]
    return DSpark(Heads(backbone(), REDUCED), texts.embedding, head, reduced)
