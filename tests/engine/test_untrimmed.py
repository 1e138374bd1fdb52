"""Steps of which no draft is trimmed, with ``core/skip-untrimmed-reallocation``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tests.engine.harness import Engine


@contextmanager
def reallocations(engine: Engine) -> Iterator[list[bool]]:
    """For each step with drafts, whether it was reallocated.

    Where it was not, vLLM's own reallocation is asked what it would have written.
    """
    runner, manager = engine.runner, engine.manager
    count, prepare = manager.get_num_tokens, runner.prepare_inputs
    reallocate = manager.reallocate_drafts
    budgets: list[Any] = []
    called: list[bool] = []

    def counted(*arguments: Any) -> Any:
        tokens = count(*arguments)
        budgets.append(manager._batch_budget)
        called.append(False)
        return tokens

    def seen(*arguments: Any) -> Any:
        called[-1] = True
        return reallocate(*arguments)

    def prepared(*arguments: Any, **named: Any) -> Any:
        batch = prepare(*arguments, **named)
        assert manager._batch_budget is None
        budget = budgets.pop() if budgets else None
        if budget is not None and not called[-1]:
            starts = runner.input_buffers.query_start_loc
            skipped = starts.clone(), batch.cu_num_logits.clone()
            starts.fill_(-1)
            manager._batch_budget = budget
            logits, written, drafts, *admitted = reallocate(batch.req_ids, batch.idx_mapping)
            assert written is starts
            assert torch.equal(written, skipped[0])  # beyond the batch too
            assert torch.equal(logits, skipped[1])
            assert logits.dtype == batch.cu_num_logits.dtype
            assert drafts == batch.num_draft_tokens == budget[2]
            assert admitted in ([], [None])
        return batch

    manager.get_num_tokens, manager.reallocate_drafts = counted, seen
    runner.prepare_inputs = prepared
    try:
        yield called
    finally:
        del manager.get_num_tokens, manager.reallocate_drafts, runner.prepare_inputs


def test_a_step_that_trims_nothing_is_not_reallocated(
    adaptive: Engine, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    adaptive.price(1e15)
    with reallocations(adaptive) as called:
        assert adaptive.greedy(prompts, batch=8) == expected
    assert len(called) > 3
    assert not any(called)


def test_the_rest_is_reallocated_as_before(
    adaptive: Engine, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    """Steps of either kind in turn, so that what one leaves behind would spoil the next."""
    policy = adaptive.manager._policy
    turn = 0

    def choose(inputs: Any) -> int:
        nonlocal turn
        turn += 1
        drafts = int(inputs.scheduled_drafts.sum())
        return drafts if turn % 3 == 0 else drafts // 2 if turn % 3 == 1 else 0

    with pytest.MonkeyPatch.context() as patch, reallocations(adaptive) as called:
        patch.setattr(policy, "choose", choose)
        assert adaptive.greedy(prompts, batch=8) == expected
    assert called[:6] == [True, True, False, True, True, False]
