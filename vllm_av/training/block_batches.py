"""Which texts, anchors and rows each training step of a block drafter sees.

Rule: a step's batch is a function of the corpus, the plan and the step's number, so that a run that
goes on after a stop trains on the same batches.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vllm_av.training.block import Blocks
from vllm_av.training.data import Corpus

POSITIONS = 7  # the most drafts behind an anchor that are trained


@dataclass(frozen=True)
class BlockPlan:
    """How a block drafter is trained; nothing in it is a time.

    Attributes:
        texts: of a step.
        anchors: in each text.
        rate: the highest learning rate.
        anchor_drafts: the anchor's row drafts position 1, the next row position 2; else the anchor
            drafts nothing and each row its own position.
        widths: positions of a block, step after step, from the first again after the last: rows
            see each other, so that each number of drafts is a model of its own.
        anchor: how much it weighs that the anchor's row, where it drafts nothing, too knows the
            target's next distribution, for the rows that look at it.
        unreached: how much of a position's weight does not ask whether the drafts before it would
            have been accepted (:func:`vllm_av.training.block_loss.reach`).
        decay: of that part, from one position to the next.
    """

    steps: int
    texts: int
    anchors: int
    rate: float
    anchor_drafts: bool
    widths: tuple[int, ...] = (5, 5, 5, POSITIONS)
    anchor: float = 0.0
    unreached: float = 0.25
    decay: float = 0.8
    warmup: int = 50
    seed: int = 0


@dataclass(frozen=True)
class BlockBatch:
    """One step's blocks, ``B = texts * anchors`` of them, and what their positions should draft.

    A block's position ``k`` drafts the token at ``anchor + k``; the target's distribution of that
    token is the one at the place before it. All but the first two are ``[B, positions]``.

    Attributes:
        streams: bfloat16 ``[tokens, 4, hidden]``, the texts' features one after another.
        blocks: where the blocks stand.
        places: int64, the token of ``streams`` at whose place the target speaks of this token.
        valid: bool, whether that place lies in the text.
        previous: int64, the true token at that place.
        wanted: int64, the true token to draft, as a number of the reduced vocabulary; -1 outside.
        likelihood: float32, the target's probability of it at temperature 1, over that vocabulary.
        greedy: bool, whether the text was made at temperature 0.
        draw: float32, uniform numbers that choose the rows to train.
    """

    streams: Tensor
    blocks: Blocks
    places: Tensor
    valid: Tensor
    previous: Tensor
    wanted: Tensor
    likelihood: Tensor
    greedy: Tensor
    draw: Tensor


class BlockBatches:
    """The batches of a run.

    Args:
        corpus: the texts.
        numbers: of the texts that are taken.
        likelihood: float32 ``[N]``, see :func:`likelihoods`.
        plan: of the run.
    """

    def __init__(
        self, corpus: Corpus, numbers: list[int], likelihood: Tensor, plan: BlockPlan
    ) -> None:
        self._corpus = corpus
        self._likelihood = likelihood
        self._plan = plan
        self._numbers = numbers

    def __getitem__(self, step: int) -> BlockBatch:
        plan, generator = self._plan, np.random.default_rng((self._plan.seed, 1, step))
        numbers = self._texts(step)
        anchors = [_anchors(self._corpus, n, plan.anchors, generator) for n in numbers]
        width = plan.widths[step % len(plan.widths)]
        return self.gather(numbers, torch.stack(anchors), width, generator)

    def gather(
        self, numbers: list[int], anchors: Tensor, width: int, generator: np.random.Generator
    ) -> BlockBatch:
        """Blocks of ``width`` positions behind ``anchors`` ``[texts, anchors]`` of ``numbers``."""
        corpus = self._corpus
        spans = [(corpus.offsets[number], corpus.offsets[number + 1]) for number in numbers]
        starts = torch.tensor([0, *(stop - start for start, stop in spans)]).cumsum(0)
        ids = torch.cat([corpus.ids[start:stop] for start, stop in spans])
        likelihood = torch.cat([self._likelihood[start:stop] for start, stop in spans])
        before = anchors[..., None] + torch.arange(width)
        valid = before < starts.diff()[:, None, None]
        places = torch.where(valid, starts[:-1, None, None] + before, 0).flatten(0, 1)
        tokens = ids[starts[:-1, None] + anchors]
        greedy = torch.tensor([corpus.temperature[number] == 0 for number in numbers])
        return BlockBatch(
            streams=torch.cat([corpus.features[start:stop] for start, stop in spans]),
            blocks=Blocks(starts, anchors, tokens, width + (not self._plan.anchor_drafts)),
            places=places,
            valid=valid.flatten(0, 1),
            previous=ids[places],
            # After the end of a text stands another one's beginning, which nobody asks for: no
            # position behind is valid.
            wanted=corpus.reduced[ids[(places + 1).clamp_max(len(ids) - 1)]],
            likelihood=likelihood[places],
            greedy=greedy.repeat_interleave(anchors.shape[1])[:, None].expand_as(places),
            draw=torch.from_numpy(generator.random(places.shape, np.float32)),
        )

    def _texts(self, step: int) -> list[int]:
        """Numbers for ``step``: epoch after epoch, each in an order of its own."""
        chosen, size = [], self._plan.texts
        for place in range(step * size, (step + 1) * size):
            epoch, index = divmod(place, len(self._numbers))
            order = np.random.default_rng((self._plan.seed, 0, epoch))
            chosen.append(self._numbers[order.permutation(len(self._numbers))[index]])
        return chosen


def likelihoods(corpus: Corpus) -> Tensor:
    """The target's probability of each token's successor, over the reduced vocabulary.

    Returns:
        float32 ``[N]``; 0 where the successor is outside the vocabulary. The last token of a text
        has the next text's first token for a successor, which no block drafts.
    """
    head = corpus.head.T.contiguous()
    successors = corpus.reduced[corpus.ids.roll(-1)]
    result = torch.zeros(len(corpus.ids))
    for start in range(0, len(corpus.ids), 256):
        part = slice(start, start + 256)
        logits = (corpus.features[part, -1] @ head).float()
        chosen = logits.gather(-1, successors[part, None].clamp_min(0))[:, 0]
        result[part] = (chosen - logits.logsumexp(-1)).exp()
    return torch.where(successors < 0, 0.0, result)


def _anchors(corpus: Corpus, number: int, count: int, generator: np.random.Generator) -> Tensor:
    """``count`` positions of generated tokens, none twice where there are enough."""
    start = corpus.prompt_lengths[number]
    stop = corpus.offsets[number + 1] - corpus.offsets[number]
    drawn = generator.choice(np.arange(start, stop), count, replace=stop - start < count)
    return torch.from_numpy(np.sort(drawn))
