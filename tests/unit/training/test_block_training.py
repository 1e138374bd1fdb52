"""A run of a few steps: it learns, and a stop in the middle changes nothing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.training import blocks
from tests.unit.training.blocks import PLAN
from vllm_av.errors import TrainingError
from vllm_av.training import block_files, block_training
from vllm_av.training.block import export
from vllm_av.training.block_batches import POSITIONS, BlockPlan
from vllm_av.training.block_training import train
from vllm_av.training.dflash import DFlash


def _run(plan: BlockPlan, state: Path, wanted: str = "this plan") -> tuple[DFlash, dict[str, Any]]:
    corpus = blocks.corpus()
    drafter = DFlash(blocks.backbone(), corpus)
    return drafter, train(drafter, blocks.batches(plan), plan, corpus.head, state, wanted)


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


def test_a_position_that_no_step_had_is_told_as_null(tmp_path: Path) -> None:
    narrow = replace(PLAN, steps=2, widths=(3,))
    drafter, told = _run(narrow, tmp_path / "state.pt")
    block_files.finish(tmp_path, {}, export(drafter.module), blocks.corpus(), told)

    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = (tmp_path / "training.json").read_text(encoding="utf-8")
    acceptance = json.loads(text, parse_constant=refused)["acceptance_on_training_text"]
    assert all(0 < value < 1 for value in acceptance[:3])
    assert acceptance[3:] == [None] * (POSITIONS - 3)
