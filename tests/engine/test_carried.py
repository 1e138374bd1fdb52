"""Each drafter that the package carries, in the engine: the target's own greedy tokens, trimmed.

Rule: nothing here depends on how good a drafter is, but that the target accepts some of its drafts.
"""

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from tests.engine.grading import graded
from tests.engine.harness import (
    FIXED_COSTS,
    STEPS,
    Engine,
    release_engines,
    speculation,
    verified_share,
)
from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.drafter import DRAFTERS, checkpoint
from vllm_av.demo.prompts import choose
from vllm_av.drafters import TYPES, Head
from vllm_av.scorers.by_drafter import choose as by_drafter
from vllm_av.seams.scorer import type_of

ROWS = {row.name: row for row in TYPES}
REQUESTS = 3
TOKENS = 24
# Of three requests the caches are small.
SMALL = {"max_num_seqs": REQUESTS, "kv_cache_memory_bytes": 96 << 20}


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    """Each test has engines of its own, and there are too many of them to keep."""
    yield
    release_engines()


@pytest.fixture(scope="module")
def alone() -> Callable[[str], tuple[list[list[int]], list[list[int]]]]:
    """``alone(target)``: prompts of that target, and what it says without speculation."""

    @cache
    def answers(target: str) -> tuple[list[list[int]], list[list[int]]]:
        engine = Engine(target, None, **SMALL)
        tokenizer = engine.llm.get_tokenizer()
        rendered = [
            tokenizer.apply_chat_template(p.messages, add_generation_prompt=True, tokenize=False)
            for p in choose(24)
        ]
        prompts = sorted((tokenizer.encode(text) for text in rendered), key=len)[: 4 * REQUESTS : 4]
        return prompts, engine.greedy(prompts, REQUESTS, TOKENS)

    return answers


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_target_says_what_it_says_alone(
    name: str, alone: Callable[[str], tuple[list[list[int]], list[list[int]]]]
) -> None:
    drafter = DRAFTERS[name]
    draft = str(checkpoint(name, smollm2()))
    target = draft if drafter.own_target else str(smollm2())
    engine = Engine(target, speculation(draft, drafter.method, adaptive=True), **SMALL)
    row = type_of(engine.runner.speculative_config, has_head=ROWS[name].head is Head.HAS)
    assert row is ROWS[name]
    assert type(engine.runner.speculator).__name__ == row.speculator
    assert engine.scorer.name == by_drafter(row).scorer
    assert engine.runner.speculator.num_speculative_steps == STEPS
    prompts, expected = alone(target)
    engine.price(REQUESTS * FIXED_COSTS["some"])
    with graded(engine, since=0) as rows, engine.recorded() as steps:
        assert engine.greedy(prompts, REQUESTS, TOKENS) == expected
    assert 0 < verified_share(steps) < 1
    assert any(step.ragged for step in steps)
    assert sum((row.accepted & row.labelled).sum() for row in rows) > 0
