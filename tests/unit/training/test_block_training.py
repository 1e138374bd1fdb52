"""A run of a few steps: it learns, and a stop in the middle changes nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.training import blocks
from vllm_av.errors import TrainingError
from vllm_av.training import block_training
from vllm_av.training.block_batches import POSITIONS, Batches, Plan, likelihoods
from vllm_av.training.block_training import rate, train
from vllm_av.training.dflash import DFlash

PLAN = Plan(
    steps=40, texts=3, anchors=6, rate=1e-2, anchor_drafts=False, widths=(POSITIONS,), warmup=5
)


def _run(plan: Plan, state: Path, wanted: str = "this plan") -> tuple[DFlash, dict[str, Any]]:
    corpus = blocks.corpus()
    head = corpus.embedding[corpus.vocabulary]
    drafter = DFlash(blocks.backbone(), corpus.embedding, head)
    batches = Batches(corpus, list(range(7)), likelihoods(corpus), plan)
    return drafter, train(drafter, batches, plan, head, state, wanted)


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    first = _run(replace(PLAN, steps=1), tmp_path / "first.pt")[1]
    last = _run(PLAN, tmp_path / "last.pt")[1]
    assert last["loss"] < 0.9 * first["loss"]
    begun, ended = (run["acceptance_on_training_text"][0] for run in (first, last))
    assert ended > 2 * begun


def test_a_run_that_was_stopped_ends_like_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, told = _run(PLAN, tmp_path / "whole.pt")
    state = tmp_path / "stopped.pt"
    monkeypatch.setattr(block_training, "_SAVED_EVERY", 10)
    learn, steps = block_training.learn, iter(range(25))

    def dying(*arguments: Any) -> Any:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return learn(*arguments)

    monkeypatch.setattr(block_training, "learn", dying)
    with pytest.raises(KeyboardInterrupt):
        _run(PLAN, state)
    assert torch.load(state)["done"] == 20
    monkeypatch.setattr(block_training, "learn", learn)
    with pytest.raises(TrainingError, match=r"stopped\.pt was made by another plan"):
        _run(PLAN, state, "another plan")
    resumed, told_again = _run(PLAN, state)
    assert told_again == told
    for left, right in zip(whole.module.parameters(), resumed.module.parameters(), strict=True):
        assert torch.equal(left, right)


def test_the_rate_rises_then_falls() -> None:
    rates = [rate(PLAN, step) for step in range(PLAN.steps)]
    assert rates.index(max(rates)) == PLAN.warmup - 1
    assert rates[0] < rates[1]
    assert rates[-1] < 0.05 * PLAN.rate
