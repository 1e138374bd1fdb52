"""What a step that trims nothing costs, with ``core/skip-untrimmed-reallocation`` and without.

SmolLM2-135M with its EAGLE head, 4 and 32 requests, in one engine of this process. The steps that
are compared alternate; a step without the patch reallocates the same drafts again, as vLLM did.
"""

import os
import statistics
from collections import defaultdict
from typing import Any

from tests.engine.harness import ENVIRONMENT, Engine, speculation

os.environ.update(ENVIRONMENT)

import pytest

from tests.benchmarks.test_engine import Clock, begin, finish
from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.drafter import carried

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]

STEPS = 7
_ENGINES: list[Engine] = []


def engine() -> Engine:
    """The same for both numbers of requests."""
    if not _ENGINES:
        spec = speculation(str(carried("eagle")), "eagle", adaptive=True, steps=STEPS)
        _ENGINES.append(Engine(str(smollm2()), spec, dtype="bfloat16", max_num_seqs=32))
        _ENGINES[0].price(1e15)
    return _ENGINES[0]


@pytest.mark.parametrize("requests", [4, 32])
def test_a_step_that_trims_nothing(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, requests: int
) -> None:
    served = engine()
    manager, clock = served.manager, Clock()
    compact, reallocate = manager.compact_batch, manager.reallocate_drafts
    patched, calls = True, 0

    def compacted(*arguments: Any) -> Any:
        budget = manager._batch_budget
        result = compact(*arguments)
        if not patched:
            manager._batch_budget = budget
        return result

    def reallocated(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return reallocate(*arguments)

    monkeypatch.setattr(manager, "compact_batch", compacted)
    monkeypatch.setattr(manager, "reallocate_drafts", reallocated)
    with monkeypatch.context() as patch:
        for owner, method, name in (
            (served.runner, "prepare_inputs", "inputs"),
            (served.llm.llm_engine, "step", "step"),
        ):
            patch.setattr(owner, method, getattr(owner, method))  # put back afterwards
            clock.wrap(owner, method, name)
        begin(served, requests, temperature=0.0)
        times: defaultdict[str, list[float]] = defaultdict(list)

        def both() -> None:
            nonlocal patched
            for patched in (True, False):
                before = calls
                clock.take()
                served.llm.llm_engine.step()
                assert calls - before == (not patched)
                for what, seconds in clock.take().items():
                    times[f"{what} {'with' if patched else 'without'}"].append(seconds)

        benchmark.pedantic(both, rounds=15, warmup_rounds=2)
        finish(served, requests)
    median = {what: statistics.median(values[2:]) for what, values in times.items()}
    benchmark.extra_info.update(
        {f"{what} us": round(seconds * 1e6) for what, seconds in median.items()}
        | {"inputs, with / without": round(median["inputs with"] / median["inputs without"], 3)}
    )
