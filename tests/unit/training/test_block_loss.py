"""The loss of block drafters and its gradients, against autograd; which positions are reached."""

import pytest
import torch

from tests.unit.training import blocks
from tests.unit.training.reference import row_loss
from vllm_av.training.block_batches import POSITIONS, BlockBatch
from vllm_av.training.block_learner import weights
from vllm_av.training.block_loss import distil, reach


def test_gradients_are_those_of_the_loss() -> None:
    torch.manual_seed(0)
    states = torch.randn(300, 10, requires_grad=True)  # more rows than a chunk
    head = torch.randn(30, 10)
    head[:, -2:].requires_grad_()
    trained = torch.randn(30, 2, requires_grad=True)
    whole = torch.cat([head[:, :-2], trained], dim=-1)
    target_head, wanted, share = torch.randn(30, 8), torch.randn(300, 8), torch.rand(300)
    target, draft = wanted @ target_head.T, states @ whole.T
    loss = share @ row_loss(target, draft)
    loss.backward()
    found = distil(states.detach(), whole.detach(), wanted, target_head, share, trained=2)
    assert found.loss == pytest.approx(loss.item(), rel=1e-5)
    overlap = torch.minimum(target.softmax(-1), draft.detach().softmax(-1)).sum(-1)
    torch.testing.assert_close(found.acceptance, overlap)
    torch.testing.assert_close(found.states, states.grad)
    torch.testing.assert_close(found.head, trained.grad)


@pytest.fixture(scope="module")
def batch() -> BlockBatch:
    return blocks.batches()[0]


def test_reach_is_the_product_of_what_is_kept_before(batch: BlockBatch) -> None:
    torch.manual_seed(1)
    states = torch.randn(len(batch.places), POSITIONS, blocks.HIDDEN)
    head = torch.randn(blocks.REDUCED, blocks.HIDDEN) / 2
    found = reach(states, head, batch)
    q = (states @ head.T).softmax(-1)
    for row in range(len(found)):
        expected = 1.0
        for k in range(POSITIONS):
            assert found[row, k].item() == pytest.approx(expected, abs=1e-6)
            token = int(batch.wanted[row, k])
            if token < 0:
                expected = 0.0
            elif batch.greedy[row, k]:
                expected *= float(q[row, k].argmax() == token)
            else:
                expected *= min(1.0, (q[row, k, token] / batch.likelihood[row, k]).item())
    assert 0 < (found[:, 1] > 0).sum() < len(found)


def test_a_drafter_that_is_the_target_reaches_every_position(batch: BlockBatch) -> None:
    states = batch.streams[batch.places, -1]
    found = reach(states, blocks.corpus().head, batch)
    inside = (batch.wanted >= 0) & batch.valid & ~batch.greedy
    reachable = torch.cat([torch.ones(len(inside), 1).bool(), inside[:, :-1]], -1).cumprod(-1)
    sampled = ~batch.greedy & batch.valid
    torch.testing.assert_close(found[sampled], reachable[sampled].float())


def test_unreached_positions_keep_a_part_that_decays() -> None:
    found = weights(torch.tensor([[1.0, 0.5, 0.0]]), blocks.PLAN)
    share, decay = blocks.PLAN.unreached, blocks.PLAN.decay
    expected = [1.0, share * decay + (1 - share) / 2, share * decay**2]
    torch.testing.assert_close(found, torch.tensor([expected]))
