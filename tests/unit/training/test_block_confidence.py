"""The confidence head: what it is told, and that it says so."""

from dataclasses import replace

import pytest
import torch

from tests.unit.training import blocks
from vllm_av.training.block_batches import POSITIONS
from vllm_av.training.block_confidence import Rows, _by_position, acceptance, collect, fit, regress
from vllm_av.training.block_training import train
from vllm_av.training.dspark import RANK, DSpark

PLAN = replace(blocks.PLAN, steps=12, anchor_drafts=True)
CORPUS = blocks.corpus()


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> DSpark:
    """One that has learnt a little."""
    drafter = blocks.dspark()
    plan = replace(PLAN, steps=60, rate=2e-2, warmup=50)
    state = tmp_path_factory.mktemp("drafter") / "state.pt"
    train(drafter, blocks.batches(plan), plan, CORPUS.head, state, "a digest")
    return drafter


@torch.no_grad()
def test_labels_are_acceptance_over_the_whole_vocabulary(drafter: DSpark) -> None:
    batch = blocks.batches(PLAN)[0]
    states, _, head = drafter.states(batch)
    taken = batch.valid
    found = acceptance(states[taken], head, batch, taken, CORPUS)
    rows = taken.nonzero().tolist()
    for label, (block, k) in zip(found.tolist(), rows, strict=True):
        p = (batch.streams[batch.places[block, k], -1] @ CORPUS.embedding.T).softmax(-1)
        q = torch.zeros(blocks.VOCABULARY)  # of the target's tokens
        q[CORPUS.vocabulary] = (states[block, k] @ head.T).softmax(-1)
        if batch.greedy[block, k]:
            assert label == float(p.argmax() == q.argmax())
        else:
            assert label == pytest.approx(torch.minimum(p, q).sum().item(), abs=1e-5)
    assert set(found[batch.greedy[taken]].tolist()) == {0.0, 1.0}


def test_the_regression_finds_the_weights_that_made_the_labels() -> None:
    torch.manual_seed(0)
    inputs, weights = torch.randn(4000, 5), torch.rand(4000)
    true, bias = torch.tensor([1.0, -0.5, 0.0, 0.3, 0.2]), 0.7
    labels = torch.sigmoid(inputs @ true + bias)
    # Rows that are never reached say the contrary.
    inputs, labels = torch.cat([inputs, inputs]), torch.cat([labels, 1 - labels])
    weights = torch.cat([weights, torch.zeros(4000)])
    position = torch.zeros(8000, dtype=torch.int64)
    weight, offset = regress(Rows(inputs, labels, weights, position))
    torch.testing.assert_close(weight, true, atol=5e-3, rtol=0)
    assert offset.item() == pytest.approx(bias, abs=5e-3)


def test_the_head_is_right_on_the_average(drafter: DSpark) -> None:
    batches = blocks.batches(PLAN)
    rows = collect(drafter, batches, PLAN, CORPUS)
    weight, bias = regress(rows)
    said, share = torch.sigmoid(rows.inputs @ weight + bias), rows.weights / rows.weights.sum()
    mean = share @ rows.labels
    assert (share @ said).item() == pytest.approx(mean.item(), abs=1e-3)
    # It tells rows apart: a constant would have the labels' whole variance.
    assert share @ (said - rows.labels) ** 2 < 0.9 * share @ (mean - rows.labels) ** 2


def test_the_weights_have_the_names_and_shapes_that_vllm_loads(drafter: DSpark) -> None:
    batches = blocks.batches(PLAN)
    weights, told = fit(drafter, batches, PLAN, CORPUS)
    assert {name: list(weight.shape) for name, weight in weights.items()} == {
        "confidence_head.proj.weight": [1, blocks.HIDDEN + RANK],
        "confidence_head.proj.bias": [1],
    }
    assert len(told["said"]) == len(told["true"]) == POSITIONS


def test_a_position_that_no_row_reaches_has_no_mean() -> None:
    weights, position = torch.tensor([1.0, 3.0, 0.0]), torch.tensor([0, 0, 2])
    rows = Rows(torch.zeros(3, 1), torch.tensor([1.0, 0.0, 1.0]), weights, position)
    assert _by_position(rows, rows.labels) == [0.25] + [None] * (POSITIONS - 1)
