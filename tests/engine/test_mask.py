"""What only the target applies to a request keeps it from teaching, and every such thing is told.

The coefficients that an engine learns beside requests with penalties, allowed tokens, a grammar and
so on are those that it learns without them: the same to the last bit where the recorded calls are
played again without the rows, and but for the rounding of another batch where the requests are
absent.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch

from tests.engine.constraints import constrained
from tests.engine.harness import Engine, speculation
from vllm_av.demo.drafter import carried
from vllm_av.scorers.target_only import told

INTERVAL = 3
LENGTH = 40
LEARN = ("online_estimator", "pooled_estimator")
FREE = 5
"""Requests without constraints; the constrained ones are 30% of all rows and more."""


class Custom:
    """Bans a token for the requests that ask for it; made a vLLM processor when vLLM is there."""

    @staticmethod
    def kind() -> type[Any]:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

        class Bans(LogitsProcessor):
            def add_request(self, req_idx: int, sampling_params: Any) -> bool:
                return bool((sampling_params.extra_args or {}).get("bans"))

            def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
                return logits

        return Bans


@pytest.fixture(scope="module")
def engine(target: str) -> Engine:
    from vllm.config.reasoning import ReasoningConfig

    spec = speculation(str(carried("eagle")), "eagle", True, block={"scorer": LEARN[0]})
    made = Engine(
        target,
        spec,
        max_num_seqs=16,
        max_num_batched_tokens=2048,
        logits_processors=[Custom.kind()],
        reasoning_config=ReasoningConfig(
            reasoning_start_str="<|im_start|>", reasoning_end_str="<|im_end|>"
        ),
    )
    made.price(1e15)  # every draft is verified, so that no request's steps depend on the others'
    return made


def sampling(seed: int, temperature: float = 1.0, **more: Any) -> Any:
    from vllm import SamplingParams

    more = {"max_tokens": LENGTH, "ignore_eos": True} | more
    return SamplingParams(seed=seed, temperature=temperature, **more)


@contextmanager
def observed(engine: Engine) -> Iterator[list[tuple[Any, ...]]]:
    """The verdicts inside the block, as they reach the scorer's guard."""
    speculator = engine.runner.speculator
    observe = speculator.observe_verification
    calls: list[tuple[Any, ...]] = []

    def see(*arguments: Any, **named: Any) -> None:
        calls.append(tuple(None if x is None else x.clone() for x in arguments))
        observe(*arguments, **named)

    with mock.patch.object(speculator, "observe_verification", see):
        yield calls


@contextmanager
def slots_of(engine: Engine) -> Iterator[dict[int, int]]:
    """Slot -> seed of the request that took it last."""
    sampler = engine.runner.sampler
    add, found = sampler.add_request, {}

    def see(slot: int, params: Any) -> None:
        found[slot] = params.seed
        add(slot, params)

    with mock.patch.object(sampler, "add_request", see):
        yield found


def test_each_constraint_is_told_of_its_request_and_of_no_other(
    engine: Engine, prompts: list[list[int]]
) -> None:
    kinds = constrained() | {
        "thinking": ("thinking", {"thinking_token_budget": 3}),
        "custom": ("custom", {"extra_args": {"bans": 7}}),
        "nothing": ("", {}),
        "two": ("top_p+penalties", {"top_p": 0.9, "repetition_penalty": 1.1}),
        "greedy": ("", {"temperature": 0.0, "top_k": 3, "top_p": 0.5}),
        "a processor that declines": ("", {"extra_args": {"bans": 0}}),
    }
    params = [
        sampling(seed, **{"max_tokens": 8, **more}) for seed, (_, more) in enumerate(kinds.values())
    ]
    with slots_of(engine) as slots, observed(engine) as calls:
        engine.generate([prompts[0]] * len(params), params)
    words: dict[int, set[str]] = {}
    for slot_of_row, *_, bits in calls:
        rows = [0] * len(slot_of_row) if bits is None else bits.tolist()
        for slot, row in zip(slot_of_row.tolist(), rows, strict=True):
            words.setdefault(slots[slot], set()).add(told(row) or "")
    assert {name: words[seed] for seed, name in enumerate(kinds)} == {
        name: {word} for name, (word, _) in kinds.items()
    }


def test_a_batch_without_constraints_carries_nothing(
    engine: Engine, prompts: list[list[int]]
) -> None:
    with observed(engine) as calls:
        engine.generate(prompts[:3], [sampling(seed, max_tokens=6) for seed in range(3)])
    assert len(calls) > 1
    assert all(bits is None for *_, bits in calls)


def fresh(engine: Engine, name: str) -> Any:
    """A scorer that has seen nothing yet."""
    return engine.new_scorer(scorer=name, estimator={"refit_interval": INTERVAL})


def upstreams(engine: Engine) -> Any:
    """vLLM's own estimator, refitted as often."""
    from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import OnlineAcceptanceEstimator

    speculator = engine.runner.speculator
    arguments = speculator.max_num_reqs, speculator.num_speculative_steps, speculator.device
    estimator = OnlineAcceptanceEstimator(*arguments)
    estimator.REFIT_INTERVAL = INTERVAL  # type: ignore[misc]
    return estimator


@contextmanager
def shadowed(engine: Engine, shadows: Sequence[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
    """Let each shadow have what the scorer has, its verdicts as ``change`` makes them."""
    scorer = engine.scorer
    predict, observe = scorer.predict, scorer.observe

    def see_predict(*arguments: Any) -> None:
        predict(*arguments)
        for shadow, _ in shadows:
            *others, out = arguments[:5]
            shadow.predict(*others, torch.zeros_like(out))

    def see_observe(*arguments: Any) -> None:
        observe(*arguments)
        for shadow, change in shadows:
            shadow.observe(*change(*arguments))

    with (
        mock.patch.object(scorer, "predict", see_predict),
        mock.patch.object(scorer, "observe", see_observe),
    ):
        yield


def without_rows(slots: Any, sampled: Any, rejected: Any, bits: Any) -> tuple[Any, ...]:
    """The verdicts as if the constrained requests were not there."""
    free = slice(None) if bits is None else bits == 0
    return slots[free], sampled[free], rejected[free]


def unmasked(slots: Any, sampled: Any, rejected: Any, bits: Any) -> tuple[Any, ...]:
    """The verdicts as all of them teach."""
    return slots, sampled, rejected


def mixed(prompts: list[list[int]]) -> tuple[list[list[int]], list[Any]]:
    """``FREE`` requests and those of every constraint."""
    more: list[dict[str, Any]] = [{} for _ in range(FREE)]
    more += [parameters for _, parameters in constrained().values()]
    params = [sampling(seed, **each) for seed, each in enumerate(more)]
    return [prompts[n % len(prompts)] for n in range(len(params))], params


@pytest.mark.parametrize("name", LEARN)
def test_the_coefficients_are_those_of_the_stream_without_the_rows(
    name: str, engine: Engine, prompts: list[list[int]]
) -> None:
    engine.scorer.scorer, without, spoilt = (fresh(engine, name) for _ in range(3))
    theirs, theirs_without, theirs_spoilt = (upstreams(engine) for _ in range(3))
    shadows = [
        (without, without_rows),
        (spoilt, unmasked),
        (theirs, lambda *arguments: arguments),
        (theirs_without, without_rows),
        (theirs_spoilt, unmasked),
    ]
    with shadowed(engine, shadows), observed(engine) as calls:
        engine.generate(*mixed(prompts))
    rows = sum(len(slots) for slots, *_ in calls)
    masked = sum(int((bits != 0).sum()) for *_, bits in calls if bits is not None)
    assert 0.3 < masked / rows < 0.8
    learnt, expected = engine.scorer.snapshot(), without.snapshot()
    assert learnt["masked"].sum() > 100
    assert expected["masked"].sum() == 0
    for key in learnt.keys() - {"masked"}:
        torch.testing.assert_close(learnt[key], expected[key], rtol=0, atol=0, equal_nan=True)
    assert learnt["refits"] > 2
    # And it is the mask that does it.
    for key in ("slope", "intercepts"):
        assert torch.equal(theirs.snapshot()[key], theirs_without.snapshot()[key])
    for clean, poisoned in ((without, spoilt), (theirs, theirs_spoilt)):
        moved = (clean.snapshot()["intercepts"] - poisoned.snapshot()["intercepts"]).abs()
        assert moved.max() > 0.05


@pytest.mark.parametrize("name", LEARN)
def test_the_coefficients_are_those_of_an_engine_without_the_requests(
    name: str, engine: Engine, prompts: list[list[int]]
) -> None:
    """Every free request takes the same steps in both runs, since every draft is verified."""

    def run(count: int | None) -> tuple[list[list[int]], list[dict[str, torch.Tensor]]]:
        engine.scorer.scorer = learner = fresh(engine, name)
        states: list[dict[str, torch.Tensor]] = []
        observe = learner.observe

        def see(*arguments: Any) -> None:
            observe(*arguments)
            states.append(learner.snapshot())

        learner.observe = see
        texts, params = mixed(prompts)
        tokens = engine.generate(texts[:count], params[:count])
        return tokens[:FREE], states

    tokens, beside = run(None)
    alone_tokens, alone = run(FREE)
    assert tokens == alone_tokens
    assert len(beside) >= len(alone) > 5 * INTERVAL
    for state, expected in zip(beside, alone, strict=False):
        for key in state.keys() & {"slope", "slopes", "levels", "intercepts"}:
            torch.testing.assert_close(state[key], expected[key], atol=1e-4, rtol=0)
    assert (alone[-1]["intercepts"] - alone[0]["intercepts"]).abs().max() > 0.05


def test_greedy_tokens_are_the_same_beside_constrained_requests(
    engine: Engine, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    with engine.kept_cost_tables():
        engine.price(8 * 8.0)
        texts, params = mixed(prompts)
        greedy = [sampling(n, 0.0, max_tokens=len(tokens)) for n, tokens in enumerate(expected)]
        with engine.recorded() as steps:
            tokens = engine.generate(prompts + texts[FREE:], greedy + params[FREE:])
    assert tokens[: len(prompts)] == expected
    assert any(step.ragged for step in steps)
