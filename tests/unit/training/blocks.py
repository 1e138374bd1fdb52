"""A corpus of eight short texts of random tokens, for the tests of the block drafters."""

import torch

from tests.unit.training import reference
from vllm_av.training.block import MASK_TOKEN, Backbone, BackboneShape
from vllm_av.training.block_batches import POSITIONS, BlockBatches, BlockPlan, likelihoods
from vllm_av.training.data import Corpus
from vllm_av.training.dspark import DSpark, Heads

VOCABULARY, REDUCED, HIDDEN = MASK_TOKEN + 16, 20, 16
LENGTHS = [14 + number for number in range(8)]
SHAPE = BackboneShape(
    layers=1,
    intermediate=24,
    target_layers=(0, 1, 2),
    hidden=HIDDEN,
    heads=2,
    kv_heads=1,
    head_dim=8,
)
PLAN = BlockPlan(
    steps=40, texts=3, anchors=6, rate=1e-2, anchor_drafts=False, widths=(POSITIONS,), warmup=5
)


def corpus() -> Corpus:
    """Texts of 14 to 21 tokens with prompts of 4; the last is held out, every other is greedy."""
    torch.manual_seed(5)
    embedding = torch.randn(VOCABULARY, HIDDEN)
    ids = torch.randint(VOCABULARY, (sum(LENGTHS),))
    features = torch.randn(len(ids), 4, HIDDEN)
    # The first stream tells the next token, and the target is rather sure of it.
    features[:, 0] = embedding[ids.roll(-1)]
    features[:, -1] = embedding[ids.roll(-1)] / 2
    vocabulary = torch.randperm(VOCABULARY)[:REDUCED].sort().values
    return reference.corpus(LENGTHS, 4, 7, (ids, features, embedding, vocabulary), (1.0, 0.0))


def batches(plan: BlockPlan = PLAN) -> BlockBatches:
    """Of the corpus's texts that are not held out."""
    texts = corpus()
    return BlockBatches(texts, texts.sequences(held_out=False), likelihoods(texts), plan)


def backbone() -> Backbone:
    """One with random weights."""
    torch.manual_seed(6)
    return Backbone(SHAPE, torch.ones(3 * HIDDEN))


def dspark() -> DSpark:
    """A DSpark drafter of the corpus, with random weights."""
    return DSpark(Heads(backbone(), REDUCED), corpus())
