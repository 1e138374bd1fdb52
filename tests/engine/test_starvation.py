"""A position that is believed hopeless is labelled again, and nothing that is generated changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from tests.engine import models
from tests.engine.harness import Engine, Step, speculation, verified_share
from tests.engine.sampling import (
    LENGTH,
    PROMPT,
    REQUESTS,
    TINY_STEPS,
    cap_drafts,
    draw,
    p_value,
    tiny_changes,
)

SCORERS = ("online_estimator", "pooled_estimator")
HOPELESS = -4.5
"""An intercept: one draft in a hundred, it says, and none is worth verifying at the price below."""
LONG = 56
"""Tokens of a request that has time to learn."""
SWAPPED = 3
"""Verifications until the belief is planted: a new request's first drafts are taken on trust."""


def exploring(pair: tuple[str, str], share: float, scorer: str = SCORERS[0]) -> Engine:
    target, draft = pair
    spec = speculation(
        draft, "draft_model", True, TINY_STEPS, {"scorer": scorer, "exploration": share}
    )
    return Engine(target, spec, **tiny_changes() | {"max_model_len": 2 * LENGTH + LONG})


def price_per_request(engine: Engine, cost: float) -> None:
    """Let a step cost ``cost`` for each request and 1 for each token, however many there are."""
    most = engine.runner.max_num_tokens
    draft = [(n, cost * n) for n in range(1, REQUESTS + 1)]
    engine.manager.set_cost_curves(draft, [(n, float(n)) for n in (1, most)])


@contextmanager
def without_hope(engine: Engine, scorer: str) -> Iterator[None]:
    """A scorer that believes nothing of the last position takes over after ``SWAPPED`` steps."""
    start = [0.5] * (TINY_STEPS - 1) + [HOPELESS]
    estimator = {"refit_interval": 2, "initial_intercepts": start}
    hopeless = engine.new_scorer(scorer=scorer, estimator=estimator)
    guard, seen = engine.scorer, 0
    observe = guard.observe

    def see(*arguments: Any) -> None:
        nonlocal seen
        seen += 1
        # A budget is chosen one step after the estimates that it is chosen by.
        if not SWAPPED < seen <= SWAPPED + 2:
            observe(*arguments)
        if seen == SWAPPED:
            guard.scorer = hopeless

    with mock.patch.object(guard, "observe", see):
        yield


def in_full(steps: list[Step]) -> tuple[int, int]:
    """Of all requests' steps that had every draft: how many, and how many were verified in full."""
    pairs = [
        (scheduled, admitted)
        for step in steps
        for scheduled, admitted in zip(step.scheduled, step.admitted, strict=True)
        if scheduled == TINY_STEPS
    ]
    return len(pairs), sum(admitted == TINY_STEPS for _, admitted in pairs)


@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize("scorer", SCORERS)
def test_a_starved_position_comes_back_by_exploration_alone(
    scorer: str, share: float, random_pair: tuple[str, str]
) -> None:
    engine = exploring(random_pair, share, scorer)
    price_per_request(engine, 9.0)
    with without_hope(engine, scorer):
        _, steps = draw(engine, 1.0, LONG, draws=REQUESTS)
    after = steps[SWAPPED + 2 :]  # of drafts that the new scorer has scored
    assert len(after) > 15
    requests, full = in_full(after[:1])
    believed = engine.scorer.snapshot()["intercepts"][-1].item()
    print(f"{scorer}, {share}: {[in_full([step]) for step in steps]}, {believed:.2f}")
    if share == 0.0:
        assert full == 0
        assert in_full(after)[1] == 0
        assert believed == HOPELESS
        return
    assert full == pytest.approx(share * requests, abs=1)
    assert believed > HOPELESS + 0.5
    # The budget's own decision verifies the position again.
    requests, full = in_full(after[10:])
    assert full > 2 * share * requests


def test_greedy_tokens_are_those_of_the_target(random_pair: tuple[str, str]) -> None:
    prompts = [[n % 8, 3 * n % 8, 5, (n * n) % 8] for n in range(8)]
    engine = exploring(random_pair, 0.3)
    price_per_request(engine, 3.0)
    with engine.recorded() as steps, without_hope(engine, SCORERS[0]):
        tokens = engine.greedy(prompts, batch=8, max_tokens=LONG)
    assert tokens == [models.greedy(random_pair[0], prompt, LONG) for prompt in prompts]
    assert any(step.ragged for step in steps)


def test_sampled_tokens_follow_the_target(random_pair: tuple[str, str]) -> None:
    engine = exploring(random_pair, 0.1)
    cap_drafts(engine, drafts=300)
    tokens, steps = draw(engine, 1.0, LENGTH)
    assert 0.2 < verified_share(steps) < 0.8
    p = p_value(tokens, models.joint(random_pair[0], PROMPT, LENGTH, 1.0))
    print(f"p = {p:.3g}")
    assert p > 0.001
