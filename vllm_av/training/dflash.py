"""Trains the DFlash drafter: a block of mask tokens behind the anchor, each drafting its own."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vllm_av.training import block_files
from vllm_av.training.block import Backbone, BackboneShape, config, export
from vllm_av.training.block_batches import BlockBatch, BlockBatches, BlockPlan
from vllm_av.training.block_training import train
from vllm_av.training.data import Corpus, open_corpus
from vllm_av.training.whole import digest, is_made

SHAPE = BackboneShape(layers=2, intermediate=368, target_layers=(1, 14, 26))  # 8.1 MB
PLAN = BlockPlan(steps=7000, texts=4, anchors=32, rate=2e-3, anchor_drafts=False, anchor=0.5)


@dataclass
class DFlash:
    """A DFlash drafter in training (see :class:`vllm_av.training.block_learner.BlockDrafter`).

    Attributes:
        module: the backbone.
        corpus: what it drafts for.
    """

    module: Backbone
    corpus: Corpus

    def states(self, batch: BlockBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The states of the mask tokens, and of the anchors."""
        rows = self.module(batch.streams[:, :-1].flatten(1), batch.blocks, self.corpus.embedding)
        rows = rows.flatten(0, 1)
        return rows[:, 1:], rows[:, 0], self.corpus.head


def identity(corpus: Corpus) -> str:
    """Of what the drafter is made from."""
    return digest("dflash", block_files.VERSION, SHAPE, PLAN, corpus.digest)


def run(work: Path) -> None:
    """Train into ``work / "smollm2-dflash"``; does nothing where that is whole."""
    folder = work / "smollm2-dflash"
    corpus = open_corpus(work)
    wanted = identity(corpus)
    if is_made(folder / "training.json", wanted):
        return
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    drafter = DFlash(block_files.fresh(SHAPE, corpus, PLAN.seed), corpus)
    numbers, _ = block_files.parts(corpus)
    batches = BlockBatches(corpus, numbers, block_files.likelihoods_of(work, corpus), PLAN)
    told = train(drafter, batches, PLAN, corpus.head, folder / "state.pt", wanted)
    written = config(SHAPE, len(corpus.embedding), len(corpus.vocabulary))
    block_files.finish(
        folder,
        written | {"architectures": ["DFlashDraftModel"]},
        export(drafter.module),
        corpus,
        told,
    )
