"""The blocks of a step: anchors among the generated tokens, and what each position drafts."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from tests.unit.training import blocks
from vllm_av.training.block_batches import POSITIONS, BlockBatch, BlockBatches, likelihoods

PLAN = replace(blocks.PLAN, texts=2, anchors=5)
CORPUS = blocks.corpus()


@pytest.fixture(scope="module")
def batches() -> BlockBatches:
    return blocks.batches(PLAN)


def _texts(batch: BlockBatch) -> list[int]:
    """Numbers of the batch's texts, found by their tokens' features."""
    starts = batch.blocks.texts[:-1]
    return [CORPUS.offsets.index(int((CORPUS.features == batch.streams[start]).flatten(1).all(-1)
            .nonzero()[0])) for start in starts]  # fmt: skip


def test_positions_draft_the_tokens_behind_the_anchor(batches: BlockBatches) -> None:
    batch = batches[0]
    reduced = CORPUS.vocabulary.tolist()
    for text, number in enumerate(_texts(batch)):
        start, stop = CORPUS.offsets[number], CORPUS.offsets[number + 1]
        for block in range(PLAN.anchors):
            row = text * PLAN.anchors + block
            anchor = start + int(batch.blocks.anchors[text, block])
            assert batch.blocks.tokens[text, block] == CORPUS.ids[anchor]
            assert bool(batch.greedy[row].all()) is (CORPUS.temperature[number] == 0)
            for k in range(1, POSITIONS + 1):
                valid = anchor + k - 1 < stop
                assert bool(batch.valid[row, k - 1]) is valid
                if not valid:
                    continue
                assert batch.previous[row, k - 1] == CORPUS.ids[anchor + k - 1]
                place = batch.places[row, k - 1]
                assert torch.equal(batch.streams[place], CORPUS.features[anchor + k - 1])
                if anchor + k < stop:
                    token = int(CORPUS.ids[anchor + k])
                    expected = reduced.index(token) if token in reduced else -1
                    assert batch.wanted[row, k - 1] == expected


def test_anchors_are_generated_tokens_each_once(batches: BlockBatches) -> None:
    for step in range(8):
        batch = batches[step]
        for anchors, length in zip(batch.blocks.anchors, batch.blocks.texts.diff(), strict=True):
            assert anchors.min() >= 4
            assert anchors.max() < length
            assert len(anchors.unique()) == PLAN.anchors


def test_a_step_has_the_same_batch_however_it_is_reached(batches: BlockBatches) -> None:
    fresh = blocks.batches(PLAN)
    for field in ("streams", "places", "draw", "wanted"):
        assert torch.equal(getattr(fresh[3], field), getattr(batches[3], field))
    assert not torch.equal(batches[3].draw, batches[2].draw)


def test_a_pass_takes_every_text_that_is_not_held_out_once(batches: BlockBatches) -> None:
    # Seven texts, two a step: seven steps are two passes.
    seen = Counter(number for step in range(7) for number in _texts(batches[step]))
    assert seen == dict.fromkeys(range(7), 2)


def test_likelihoods_are_the_targets_over_the_reduced_vocabulary() -> None:
    found = likelihoods(CORPUS)
    logits = CORPUS.features[:, -1] @ CORPUS.embedding[CORPUS.vocabulary].T
    for place in range(len(CORPUS.ids) - 1):
        token = CORPUS.ids[place + 1]
        index = (CORPUS.vocabulary == token).nonzero()
        expected = logits[place].softmax(-1)[index[0, 0]] if len(index) else torch.tensor(0.0)
        torch.testing.assert_close(found[place], expected)
