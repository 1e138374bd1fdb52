"""Trains the DSpark drafter: DFlash's block with a Markov head, then a confidence head on top.

The Markov head adds ``w2 @ w1[previous token]`` to a position's logits, so that a draft knows the
one before it; in training the previous tokens are the true ones. The confidence head reads a
position's state and ``w1[previous token]`` and says how probable it is that the draft is accepted::

    sigmoid(proj([state, w1[previous]]) + bias)   against   sum of min(p, q) at that position

It never reads the drafted token itself. Positions weigh as the engine reaches them, and the texts
are answers that the backbone never saw.

Rule: the anchor's row drafts the first position (vLLM's ``sample_from_anchor``, its default), the
mask token behind it the second. The backbone begins with DFlash's weights, whose anchor row was
trained to know just that.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vllm_av.training import block_files, dflash
from vllm_av.training.block import Backbone, config, export, restore
from vllm_av.training.block_batches import POSITIONS, BlockBatch, BlockBatches, BlockPlan
from vllm_av.training.block_confidence import fit
from vllm_av.training.block_training import train
from vllm_av.training.data import Corpus, open_corpus
from vllm_av.training.whole import digest, is_made

RANK = 16
PLAN = BlockPlan(steps=2500, texts=4, anchors=32, rate=1.5e-3, anchor_drafts=True, seed=1)
CONFIDENCE = BlockPlan(steps=80, texts=4, anchors=32, rate=0.0, anchor_drafts=True, seed=2)
_STRETCH = 5.0  # of the Markov head's weights, which have further to go than the backbone's


class Heads(nn.Module):
    """A backbone with its Markov head.

    Attributes:
        w1: float32 ``[draft vocabulary, RANK]``, of the previous token, over ``_STRETCH``; tokens
            outside the draft vocabulary have zeros.
        w2: float32 ``[draft vocabulary, RANK]``, of the token to draft, likewise.
    """

    def __init__(self, backbone: Backbone, draft_vocabulary: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.w1 = nn.Parameter(torch.randn(draft_vocabulary, RANK) / _STRETCH)
        self.w2 = nn.Parameter(torch.zeros(draft_vocabulary, RANK))


@dataclass
class DSpark:
    """A DSpark drafter in training (see :class:`vllm_av.training.block_learner.BlockDrafter`).

    Attributes:
        module: what is trained.
        corpus: what it drafts for.
    """

    module: Heads
    corpus: Corpus

    def states(self, batch: BlockBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Logits are ``[state, w1[previous]] @ [head, w2].T``; each row drafts."""
        streams = batch.streams[:, :-1].flatten(1)
        rows = self.module.backbone(streams, batch.blocks, self.corpus.embedding).flatten(0, 1)
        before = self.markov(batch.previous).to(rows.dtype)
        states = torch.cat([rows, before], dim=-1)
        head = self.corpus.head
        own = (_STRETCH * self.module.w2).to(head.dtype)
        return states, states[:0, 0], torch.cat([head, own], dim=-1)

    def markov(self, tokens: Tensor) -> Tensor:
        """The Markov embedding of ``tokens``, numbers of the target's: ``[..., RANK]``."""
        numbers = self.corpus.reduced[tokens]
        found = F.embedding(numbers.clamp_min(0), _STRETCH * self.module.w1)
        return found * (numbers >= 0)[..., None]


def run(work: Path) -> None:
    """Train into ``work / "smollm2-dspark"``, from DFlash's; does nothing where that is whole."""
    folder = work / "smollm2-dspark"
    corpus = open_corpus(work)
    begun = dflash.identity(corpus)
    wanted = digest("dspark", block_files.VERSION, RANK, PLAN, CONFIDENCE, begun)
    if is_made(folder / "training.json", wanted):
        return
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    drafter = _fresh(corpus, block_files.weights_of(work / "smollm2-dflash"))
    likelihood = block_files.likelihoods_of(work, corpus)
    trained, apart = block_files.parts(corpus)
    batches = BlockBatches(corpus, trained, likelihood, PLAN)
    state = folder / "state.pt"
    told: dict[str, Any] = train(drafter, batches, PLAN, corpus.head, state, wanted)
    batches = BlockBatches(corpus, apart, likelihood, CONFIDENCE)
    confidence, told["confidence"] = fit(drafter, batches, CONFIDENCE, corpus)
    written = config(dflash.SHAPE, len(corpus.embedding), len(corpus.vocabulary)) | _CONFIG
    block_files.finish(folder, written, carried(drafter) | confidence, corpus, told)


_CONFIG: dict[str, object] = {
    "architectures": ["Qwen3DSparkModel"],
    "sample_from_anchor": True,
    "block_size": POSITIONS,
    "markov_rank": RANK,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}


def _fresh(corpus: Corpus, weights: dict[str, Tensor]) -> DSpark:
    backbone = Backbone(dflash.SHAPE, block_files.scales(corpus))
    restore(backbone, weights)
    torch.manual_seed(PLAN.seed)
    return DSpark(Heads(backbone, len(corpus.vocabulary)), corpus)


def carried(drafter: DSpark) -> dict[str, Tensor]:
    """As the package carries them: ``w1`` has a row for each draft token alone."""
    heads = drafter.module.w1.detach(), drafter.module.w2.detach()
    w1, w2 = ((_STRETCH * weight).to(torch.bfloat16) for weight in heads)
    return export(drafter.module.backbone) | {
        "markov_head.markov_w1.weight": w1,
        "markov_head.markov_w2.weight": w2,
    }
