"""The gradient that is written by hand, against torch's own."""

import pytest
import torch
from torch import Tensor

from tests.unit.training.reference import row_loss
from vllm_av.training.loss import CHUNK, attach, distance


@pytest.fixture
def case() -> dict[str, Tensor]:
    """More rows than a chunk; the second draft step has none for half of them."""
    draw = torch.Generator().manual_seed(0)
    rows, vocabulary = CHUNK + 9, 50
    weights = torch.rand(2, rows, generator=draw)
    weights[1, ::2] = 0
    return {
        "drafts": torch.randn(2, rows, 8, generator=draw),
        "target": torch.randn(rows, 8, generator=draw),
        "weights": weights,
        "head": torch.randn(vocabulary, 8, generator=draw),
        "bias": torch.randn(vocabulary, generator=draw),
    }


def test_the_gradient_is_that_of_the_loss(case: dict[str, Tensor]) -> None:
    exact = {name: value.double() for name, value in case.items()}
    drafts = exact["drafts"].requires_grad_()
    target, draft = (each @ exact["head"].T + exact["bias"] for each in (exact["target"], drafts))
    loss = (exact["weights"] * row_loss(target, draft)).sum()
    (expected,) = torch.autograd.grad(loss, drafts)
    found = distance(**case).gradient
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)


def test_a_draft_that_equals_the_target_is_accepted(case: dict[str, Tensor]) -> None:
    drafts = case["target"].expand(2, -1, -1).contiguous()
    loss = distance(drafts, case["target"], case["weights"], case["head"])
    torch.testing.assert_close(loss.acceptance, torch.ones(2))
    torch.testing.assert_close(loss.agreement, torch.ones(2))


def test_acceptance_is_the_mean_overlap_by_weight() -> None:
    """p = (.5, .5) and q = (.2, .8) overlap by .7, p and itself by 1; three parts to one."""
    head = torch.eye(2)
    target = torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log()
    drafts = torch.tensor([[[0.2, 0.8], [0.5, 0.5]]]).log()
    loss = distance(drafts, target, torch.tensor([[3.0, 1.0]]), head)
    torch.testing.assert_close(loss.acceptance, torch.tensor([(3 * 0.7 + 1.0) / 4]))


def test_a_bias_makes_a_token_stand_for_several() -> None:
    """Four equal tokens and one of them with the logarithm of four: the rest sees no difference."""
    draw = torch.Generator().manual_seed(1)
    head = torch.randn(5, 8, generator=draw)
    many = torch.cat([head, head[-1:].expand(3, -1)])
    bias = torch.tensor([1.0, 1.0, 1.0, 1.0, 4.0]).log()
    drafts, target = torch.randn(1, 6, 8, generator=draw), torch.randn(6, 8, generator=draw)
    weights = torch.ones(1, 6)
    short = distance(drafts, target, weights, head, bias=bias)
    full = distance(drafts, target, weights, many)
    torch.testing.assert_close(short.acceptance, full.acceptance)
    torch.testing.assert_close(short.gradient, full.gradient)


def test_attached_the_gradient_reaches_what_made_the_drafts() -> None:
    base = torch.randn(3, 4, requires_grad=True)
    gradient = torch.randn(3, 4)
    attach(2 * base, gradient).backward()
    assert base.grad is not None
    torch.testing.assert_close(base.grad, 2 * gradient)
