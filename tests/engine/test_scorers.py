"""Each scorer in the engine: it is the one in force, it trims, and the output stays exact.

The same greedy and sampled tests as those of the plain engine, on tiny models: a drafter that is
the target with noise, and DSpark drafters with and without a confidence head.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch

from tests.engine import models
from tests.engine.harness import BATCHES, Engine, verified_share
from tests.engine.sampling import (
    LENGTH,
    PROMPT,
    TINY_STEPS,
    cap_drafts,
    draw,
    p_value,
    tiny_engine,
)

PROMPTS = [[n % 8, 3 * n % 8, 5, (n * n) % 8] for n in range(8)]


class Case(NamedTuple):
    """What the user wrote for which drafter, and what must then be in force."""

    pair: str
    method: str
    block: dict[str, Any] | None
    scorer: str
    method_called: str


CASES = {
    "nothing": Case("random_pair", "draft_model", None, "online_estimator", "predict"),
    "estimator": Case(
        "random_pair",
        "draft_model",
        {"scorer": "online_estimator", "estimator": {"refit_interval": 30, "damping": 500.0}},
        "online_estimator",
        "predict",
    ),
    "probability": Case(
        "random_pair", "draft_model", {"scorer": "max_probability"}, "max_probability", "predict"
    ),
    "head": Case("dspark", "dspark", {"scorer": "auto"}, "confidence_head", "predict_block"),
    "head by name": Case(
        "dspark", "dspark", {"scorer": "confidence_head"}, "confidence_head", "predict_block"
    ),
    "no head": Case("dspark_headless", "dspark", {}, "online_estimator", "predict"),
    # The user's word over a head that is there.
    "estimator over a head": Case(
        "dspark", "dspark", {"scorer": "online_estimator"}, "online_estimator", "predict"
    ),
}


# These differ in the scorer or in what it is asked with; the others only in who chose it.
DISTINCT = ["estimator", "probability", "head", "estimator over a head"]

# Share of a full batch's drafts that the budget has room for, and the share that is verified in
# all: more, since a batch has fewer requests in its end.
ROOM = {"all": 1.0, "some": 0.5, "few": 0.15}
VERIFIED = {"all": (1.0, 1.0), "some": (0.3, 0.9), "few": (0.05, 0.5)}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def pair(case: Case, request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.getfixturevalue(case.pair)


@pytest.fixture(scope="module")
def engine(case: Case, pair: tuple[str, str]) -> Engine:
    return tiny_engine(pair, case.method, block=case.block)


@pytest.fixture(scope="module")
def expected(pair: tuple[str, str]) -> list[list[int]]:
    """Greedy tokens by transformers, without any speculation."""
    return [models.greedy(pair[0], prompt) for prompt in PROMPTS]


@contextmanager
def counted(engine: Engine) -> Iterator[Counter[str]]:
    """How often each method of the scorer in force is called."""
    scorer = engine.scorer
    calls: Counter[str] = Counter()

    def count(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return method(*arguments)

        return call

    names = ("predict", "predict_block", "observe")
    for name in names:
        setattr(scorer, name, count(name, getattr(scorer, name)))
    try:
        yield calls
    finally:
        for name in names:
            delattr(scorer, name)


def test_the_scorer_is_the_one_in_force(case: Case, engine: Engine) -> None:
    assert engine.scorer.name == case.scorer
    with counted(engine) as calls, engine.kept_cost_tables():
        cap_drafts(engine, 12, requests=8)
        with engine.recorded() as steps:
            engine.greedy(PROMPTS, batch=8)
    assert set(calls) == {case.method_called, "observe"}
    assert calls["observe"] >= len(steps) > 0
    buffer = engine.runner.speculator.draft_token_confidence_probs[:8]
    assert ((buffer > 0) & (buffer < 1)).all()
    assert buffer.unique().numel() >= TINY_STEPS


def test_what_the_user_wrote_reached_the_estimator(case: Case, engine: Engine) -> None:
    if case.scorer != "online_estimator":
        assert engine.scorer.snapshot() == {}
        return
    written = (case.block or {}).get("estimator", {})
    settings = engine.estimator.settings
    assert settings.refit_interval == written.get("refit_interval", 100)
    assert settings.damping == written.get("damping", 50.0)


@pytest.mark.parametrize("case", DISTINCT, indirect=True)
@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("batch", BATCHES)
def test_greedy_tokens_are_the_target_s(
    batch: int, room: str, engine: Engine, expected: list[list[int]]
) -> None:
    with engine.kept_cost_tables(), engine.recorded() as steps:
        cap_drafts(engine, max(1, round(ROOM[room] * batch * TINY_STEPS)), batch)
        assert engine.greedy(PROMPTS, batch) == expected
    low, high = VERIFIED[room]
    assert low <= verified_share(steps) <= high
    if batch > 1:
        assert any(step.ragged for step in steps) == (room != "all")


@pytest.mark.parametrize("case", DISTINCT, indirect=True)
def test_sampled_tokens_follow_the_target(engine: Engine, pair: tuple[str, str]) -> None:
    with engine.kept_cost_tables():
        cap_drafts(engine, drafts=300)
        tokens, steps = draw(engine, 1.0, LENGTH)
    assert 0.2 < verified_share(steps) < 0.8
    assert sum(step.ragged for step in steps) > len(steps) / 2
    p = p_value(tokens, models.joint(pair[0], PROMPT, LENGTH, 1.0))
    print(f"p = {p:.3g}")
    assert p > 0.001


def test_the_top_probability_is_that_of_the_draft_logits(random_pair: tuple[str, str]) -> None:
    """The number that vLLM trims by, against the logits that vLLM drew from."""
    engine = tiny_engine(random_pair, block={"scorer": "max_probability"})
    speculator = engine.runner.speculator
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    observe = speculator.observe_verification

    def see(idx_mapping: torch.Tensor, *arguments: Any) -> None:
        logits = speculator.draft_logits[idx_mapping]
        heat = speculator.temperature[idx_mapping, None, None]
        rows = speculator.draft_token_confidence_probs[: len(idx_mapping)]
        seen.append(((logits / heat).softmax(-1).amax(-1), rows.clone()))
        observe(idx_mapping, *arguments)

    speculator.observe_verification = see
    from vllm import SamplingParams

    params = [SamplingParams(temperature=t, max_tokens=8, ignore_eos=True) for t in (0.4, 1.0, 2.0)]
    engine.generate(PROMPTS[:3], params)
    assert len(seen) > 3
    for expected, rows in seen[1:]:  # before the first step nothing was drafted
        torch.testing.assert_close(rows, expected, atol=1e-5, rtol=0)
