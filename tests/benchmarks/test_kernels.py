"""How fast the compiled kernels are: a ratio within one run, on one thread.

    compiled against Triton's interpreter   one decode step with speculation   at least 25x

The step is a real one, of SmolLM2-135M in bfloat16 with its EAGLE head: every launch in it is
recorded with a copy of its arguments, and then timed compiled and interpreted on such copies.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.engine.harness import ENVIRONMENT, Engine, speculation

os.environ.update(ENVIRONMENT)

import pytest
import torch

from tests.kernels.check import copied
from vllm_av.cpu import interpreter
from vllm_av.cpu.launcher import Launcher
from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.drafter import carried

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]

REQUESTS = 8
PROMPT = list(range(1000, 1064))


class Launch(NamedTuple):
    """One launch of a kernel, and its arguments before it ran."""

    launcher: Launcher
    grid: Any
    args: Any
    kwargs: Any

    def seconds(self, run: Callable[..., None], rounds: int) -> float:
        """The fastest of some runs, each on arguments of its own."""
        times = []
        for _ in range(rounds):
            args, kwargs = copied(self.args, self.kwargs)
            start = time.perf_counter()
            run(self.launcher, self.grid, args, kwargs)
            times.append(time.perf_counter() - start)
        return min(times)


def interpreted(launcher: Launcher, grid: Any, args: Any, kwargs: Any) -> None:
    interpreter.run(launcher.function, grid, args, kwargs)


def begin(engine: Engine) -> None:
    """Have the requests past their prompts, with drafts to verify."""
    from vllm import SamplingParams

    for i in range(REQUESTS):
        params = SamplingParams(
            temperature=1.0, max_tokens=100, ignore_eos=True, detokenize=False, seed=i
        )
        prompt = {"prompt_token_ids": [token + i for token in PROMPT]}
        engine.llm.llm_engine.add_request(str(i), prompt, params)
    for _ in range(8):
        engine.llm.llm_engine.step()


def test_compiled_against_the_interpreter(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(
        str(smollm2()), speculation(str(carried("eagle")), "eagle", adaptive=True), dtype="bfloat16"
    )
    begin(engine)
    launches: list[Launch] = []
    real = Launcher.__call__

    def record(self: Launcher, grid: Any, args: Any, kwargs: Any) -> None:
        launches.append(Launch(self, grid, *copied(args, kwargs)))
        real(self, grid, args, kwargs)

    with monkeypatch.context() as patch, engine.recorded() as verified:
        patch.setattr(Launcher, "__call__", record)
        engine.llm.llm_engine.step()
    assert len(verified) == 1
    assert sum(verified[0].scheduled) == REQUESTS * engine.runner.num_speculative_steps
    names = {launch.launcher.name for launch in launches}
    assert {"_gumbel_sample_kernel", "_rejection_kernel"} <= names, sorted(names)
    assert not any(launch.launcher.refused for launch in launches)

    def compiled() -> float:
        return sum(launch.seconds(real, 5) for launch in launches)

    benchmark.pedantic(compiled, rounds=3, warmup_rounds=1)
    times: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for launch in launches:
        fast, slow = launch.seconds(real, 20), launch.seconds(interpreted, 1)
        times[launch.launcher.name][0] += fast
        times[launch.launcher.name][1] += slow
    fast, slow = (sum(t[k] for t in times.values()) for k in (0, 1))
    benchmark.extra_info.update(
        {
            "launches in the step": len(launches),
            "compiled ms": round(fast * 1e3, 2),
            "interpreted ms": round(slow * 1e3, 1),
            "interpreted / compiled (bar 25)": round(slow / fast, 1),
            "threads": torch.get_num_threads(),
        }
        | {f"{name} /": round(t[1] / t[0], 1) for name, t in sorted(times.items())}
    )
    print(dict(benchmark.extra_info))
    engine.llm.llm_engine.abort_request([str(i) for i in range(REQUESTS)])
    while engine.llm.llm_engine.has_unfinished_requests():
        engine.llm.llm_engine.step()
