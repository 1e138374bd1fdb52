"""Broken reallocations that the greedy test must notice.

Each mutant swaps the budgets of two requests once, in one of the two tensors that carry them on
the device, and leaves the other as it was. The two budgets differ by one draft: the smallest
mistake there is, and one that reads no memory outside the batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tests.engine.harness import Engine


def swapped(starts: torch.Tensor, first: int, second: int) -> torch.Tensor:
    """Cumulative ``starts`` ``[n + 1]`` with the lengths of two rows exchanged."""
    lengths = starts.diff()
    lengths[[first, second]] = lengths[[second, first]]
    return torch.cat([starts[:1], starts[0] + lengths.cumsum(0)]).to(starts.dtype)


def neighbours(admitted: list[int]) -> tuple[int, int] | None:
    """Two rows whose budgets differ by one, neither the first row."""
    for low in range(1, len(admitted)):
        for high in range(1, len(admitted)):
            if admitted[high] == admitted[low] + 1:
                return low, high
    return None


@contextmanager
def mutant(engine: Engine, tensor: int) -> Iterator[list[int]]:
    """Swap two budgets in result ``tensor`` of the first reallocation that has such a pair.

    ``tensor`` is 0 for ``cu_num_logits``, 1 for ``query_start_loc``. Yields a list that then holds
    the budgets that were swapped.
    """
    manager, changed = engine.manager, []
    reallocate = manager.reallocate_drafts

    def wrapped(req_ids: list[str], idx_mapping: Any) -> Any:
        result = reallocate(req_ids, idx_mapping)
        admitted = (result[0].diff() - manager.num_bonus_tokens).tolist()
        pair = neighbours(admitted)
        if pair and not changed:
            low, high = pair
            starts = result[tensor][: len(req_ids) + 1]
            starts.copy_(swapped(starts.clone(), low, high))
            changed.extend((admitted[low], admitted[high]))
        return result

    manager.reallocate_drafts = wrapped
    try:
        yield changed
    finally:
        manager.reallocate_drafts = reallocate


def test_swapped_exchanges_two_lengths() -> None:
    starts = torch.tensor([0, 1, 4, 6], dtype=torch.int32)
    assert swapped(starts, 0, 1).tolist() == [0, 3, 4, 6]


@pytest.mark.parametrize("tensor", [0, 1], ids=["cu_num_logits", "query_start_loc"])
def test_two_swapped_budgets_change_the_tokens(
    tensor: int, adaptive: Engine, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    adaptive.price(8 * 8.0)
    with mutant(adaptive, tensor) as changed:
        assert adaptive.greedy(prompts, batch=8) != expected
    assert changed
    assert adaptive.greedy(prompts, batch=8) == expected  # and it is the mutant that did it
