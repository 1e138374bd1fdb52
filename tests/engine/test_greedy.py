"""Greedy tokens of a real model do not depend on how many drafts are verified.

The reference is vLLM without speculation. Adaptive verification runs under cost tables that keep
every draft, trim some, and trim almost all; what was admitted is recorded and asserted too, so
that equality is never that of an engine that trimmed nothing. Other drafters, a fixed number of
drafts, and requests that come alone, are in the matrix.
"""

from collections.abc import Callable

import pytest

from tests.engine.harness import (
    FIXED_COSTS,
    Engine,
    assert_trimmed,
    engine_arguments,
    generate_elsewhere,
    greedy_tokens,
    in_processes,
    speculation,
)
from vllm_av.demo.drafter import carried

CHUNK = 48  # tokens a step: less than one of the prompts


def test_the_prompts_are_eight_and_longer_than_a_chunk(prompts: list[list[int]]) -> None:
    assert len(prompts) == 8
    assert len({tuple(prompt) for prompt in prompts}) == 8
    assert max(map(len, prompts)) > CHUNK


def test_the_v1_runner_agrees_with_the_v2_runner(
    target: str, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    """In a process of its own: a runner patches torch for good when it is imported."""
    result = generate_elsewhere(
        engine_arguments(target, None), prompts, {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    )
    assert result == {"v2": False, "tokens": expected}


def test_without_speculation_the_batch_size_does_not_matter(
    start: Callable[..., Engine], prompts: list[list[int]], expected: list[list[int]]
) -> None:
    assert start(adaptive=False).greedy(prompts, batch=3) == expected


@pytest.mark.parametrize("cost", FIXED_COSTS)
def test_adaptive_verification_gives_the_same_tokens(
    cost: str, adaptive: Engine, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    adaptive.price(8 * FIXED_COSTS[cost])
    with adaptive.recorded() as steps:
        assert adaptive.greedy(prompts, batch=8) == expected
    assert_trimmed(cost, steps)
    assert any(step.ragged for step in steps) == (cost != "none")


def test_chunked_prefill_gives_the_same_tokens(
    start: Callable[..., Engine], prompts: list[list[int]], expected: list[list[int]]
) -> None:
    engine = start(adaptive=True, max_num_batched_tokens=CHUNK)
    engine.price(8 * FIXED_COSTS["some"])
    with engine.kept_cost_tables(), engine.recorded() as steps:
        assert engine.greedy(prompts, batch=8) == expected
    assert_trimmed("some", steps)
    # Steps that verify some requests while others are still in their prompts.
    assert any(0 in step.scheduled and any(step.scheduled) for step in steps)
    assert any(step.ragged for step in steps)


def test_the_engine_in_processes_of_its_own_gives_the_same_tokens(
    target: str, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    """The way vLLM runs by default: the core and the worker each in a process, real cost tables."""
    with in_processes(target, speculation(str(carried("eagle")), "eagle", adaptive=True)) as llm:
        assert llm.llm_engine.vllm_config.use_v2_model_runner
        assert greedy_tokens(llm, prompts) == expected
