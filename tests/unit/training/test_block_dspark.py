"""DSpark's Markov head: which token it reads, and how it is carried."""

from dataclasses import replace
from pathlib import Path

import torch

from tests.unit.training import blocks
from vllm_av.training.block_batches import POSITIONS
from vllm_av.training.block_training import train
from vllm_av.training.dspark import RANK, carried

PLAN = replace(blocks.PLAN, anchor_drafts=True)
CORPUS = blocks.corpus()


@torch.no_grad()
def test_logits_are_the_backbones_and_a_bias_of_the_token_before() -> None:
    drafter = blocks.dspark()
    torch.nn.init.normal_(drafter.module.w2)
    batch = blocks.batches(PLAN)[0]
    states, _, head = drafter.states(batch)
    weights = {name: weight.float() for name, weight in carried(drafter).items()}
    w1, w2 = (weights[f"markov_head.markov_w{n}.weight"] for n in (1, 2))
    plain, fixed = states[..., :-RANK], head[:, :-RANK]
    # The first position's token before is the anchor.
    assert torch.equal(batch.previous[:, 0], batch.blocks.tokens.flatten())
    vocabulary = CORPUS.vocabulary.tolist()
    outside = 0
    for block in range(len(states)):
        for k in range(POSITIONS):
            token = int(batch.previous[block, k])
            bias = torch.zeros(blocks.REDUCED)
            if token in vocabulary:
                bias = w2 @ w1[vocabulary.index(token)]
            else:
                outside += 1
            expected = plain[block, k] @ fixed.T + bias
            torch.testing.assert_close(states[block, k] @ head.T, expected, atol=0.3, rtol=0.02)
    assert outside > 0


def test_the_markov_head_learns_with_the_backbone(tmp_path: Path) -> None:
    drafter = blocks.dspark()
    before = {name: weight.clone() for name, weight in drafter.module.named_parameters()}
    told = train(
        drafter, blocks.batches(PLAN), PLAN, CORPUS.head, tmp_path / "state.pt", "a digest"
    )
    moved = {
        n for n, weight in drafter.module.named_parameters() if not torch.equal(weight, before[n])
    }
    assert moved == set(before)
    assert told["steps"] == PLAN.steps


def test_the_head_has_a_row_for_each_draft_token() -> None:
    weights = carried(blocks.dspark())
    for number in (1, 2):
        weight = weights[f"markov_head.markov_w{number}.weight"]
        assert weight.shape == (blocks.REDUCED, RANK)
        assert weight.dtype == torch.bfloat16
