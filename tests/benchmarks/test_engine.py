"""How fast the engine's steps are on the CPU; every figure is a ratio within one run.

    V2 runner against V1 runner             decode, no speculation, batch 8          at most 1.15
    sampling against the target's forward   batch 32, K 7, vocabulary 49,152, T 1    at most 0.40

SmolLM2-135M in bfloat16 with its EAGLE head, in engines of this process. Steps that are compared
alternate, so that a busy machine slows both.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tests.engine.harness import ENVIRONMENT, Engine, speculation

os.environ.update(ENVIRONMENT)

import pytest
import torch

from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.drafter import carried

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]

PROMPT = list(range(1000, 1064))


class Clock:
    """Seconds spent in wrapped calls, by name, since the last ``take``."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, attribute: str, name: str) -> None:
        call: Callable[..., Any] = getattr(owner, attribute)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.spent[name] += time.perf_counter() - start

        setattr(owner, attribute, timed)

    def take(self) -> dict[str, float]:
        spent, self.spent = self.spent, defaultdict(float)
        return spent


def begin(engine: Engine, requests: int, temperature: float) -> None:
    """Have ``requests`` requests past their prompts."""
    from vllm import SamplingParams

    for i in range(requests):
        params = SamplingParams(
            temperature=temperature, max_tokens=180, ignore_eos=True, detokenize=False, seed=i
        )
        prompt = {"prompt_token_ids": [token + i for token in PROMPT]}
        engine.llm.llm_engine.add_request(str(i), prompt, params)
    for _ in range(requests * len(PROMPT) // engine.runner.max_num_tokens + 4):
        engine.llm.llm_engine.step()


def finish(engine: Engine, requests: int) -> None:
    engine.llm.llm_engine.abort_request([str(i) for i in range(requests)])
    while engine.llm.llm_engine.has_unfinished_requests():
        engine.llm.llm_engine.step()


def test_a_decode_step_of_the_v2_runner_against_v1(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines, clocks = {}, {}
    for runner, chosen in (("v1", "0"), ("v2", "1")):
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", chosen)
        engine = engines[runner] = Engine(str(smollm2()), None, dtype="bfloat16")
        clock = clocks[runner] = Clock()
        clock.wrap(engine.runner, "execute_model", "runner")
        clock.wrap(engine.runner, "sample_tokens", "runner")
        clock.wrap(engine.llm.llm_engine, "step", "step")
        begin(engine, requests=8, temperature=0.0)
        clock.take()
    assert ".gpu." in type(engines["v2"].runner).__mro__[1].__module__
    assert ".gpu." not in type(engines["v1"].runner).__mro__[1].__module__

    times: defaultdict[str, list[float]] = defaultdict(list)

    def both() -> None:
        for name, engine in engines.items():
            engine.llm.llm_engine.step()
            for what, seconds in clocks[name].take().items():
                times[f"{name} {what}"].append(seconds)

    benchmark.pedantic(both, rounds=80, warmup_rounds=5)
    for engine in engines.values():
        finish(engine, 8)
    median = {what: statistics.median(values[5:]) for what, values in times.items()}
    benchmark.extra_info.update(
        {f"{what} ms": round(seconds * 1e3, 2) for what, seconds in median.items()}
        | {
            "runner ratio (bar 1.15)": round(median["v2 runner"] / median["v1 runner"], 3),
            "step ratio": round(median["v2 step"] / median["v1 step"], 3),
            "threads": torch.get_num_threads(),
        }
    )


def test_sampling_against_the_forward_pass(benchmark: Any) -> None:
    """Every draft is verified, so that the forward pass has 32 * 8 tokens."""
    from vllm.v1.worker.gpu.spec_decode import speculator as upstream

    engine = Engine(
        str(smollm2()),
        speculation(str(carried("eagle")), "eagle", adaptive=True, steps=7),
        dtype="bfloat16",
        max_num_seqs=32,
    )
    engine.price(1e15)
    runner, clock = engine.runner, Clock()
    clock.wrap(runner.model, "forward", "target forward")
    clock.wrap(runner.model, "compute_logits", "target logits")
    clock.wrap(upstream, "gumbel_sample", "draft sampling")
    clock.wrap(runner.speculator, "_maybe_predict_acceptance", "acceptance estimate")
    clock.wrap(runner.rejection_sampler, "_verify", "rejection sampling")
    clock.wrap(runner.speculator, "propose", "drafting, all of it")
    begin(engine, requests=32, temperature=1.0)
    clock.take()

    steps: list[dict[str, float]] = []

    def step() -> None:
        with engine.recorded() as verified:
            engine.llm.llm_engine.step()
        assert [sum(one.admitted) for one in verified] == [32 * 7]
        steps.append(clock.take())

    benchmark.pedantic(step, rounds=12, warmup_rounds=3)
    finish(engine, 32)
    median = {what: statistics.median(step[what] for step in steps[3:]) for what in steps[0]}
    sampling = median["draft sampling"] + median["rejection sampling"]
    estimated = sampling + median["acceptance estimate"]
    benchmark.extra_info.update(
        {f"{what} ms": round(seconds * 1e3, 2) for what, seconds in median.items()}
        | {
            "sampling / forward (bar 0.40)": round(sampling / median["target forward"], 3),
            "with the estimate": round(estimated / median["target forward"], 3),
            "threads": torch.get_num_threads(),
        }
    )
