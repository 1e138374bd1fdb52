"""What the guard of the draft budget costs the host in a step: one number of the table, changed.

vLLM's own decision with the guard and without, in turns, at K = 7.
"""

import statistics
import time
from typing import Any

import numpy as np
import pytest

from tests.unit.budget.inputs import Greedy, Inputs
from vllm_av.budget.gain import PredictedGain
from vllm_av.budget.scale import CostScale

STEPS = 7
ROUNDS = 400


def inputs(requests: int) -> Inputs:
    rng = np.random.default_rng(requests)
    drafts = np.full(requests, STEPS, np.int32)
    return Inputs(
        confidences=rng.random((requests, STEPS)).astype(np.float32),
        scheduled_drafts=drafts,
        num_non_draft_tokens=requests,
        num_sampling_requests=requests,
        max_draft_budget=int(drafts.sum()),
        draft_cost_ms=2.0,
        verify_cost_ms=8.0 + 0.01 * np.arange(8193.0),
    )


@pytest.mark.parametrize("requests", [64, 256])
def test_the_guard_is_not_felt(benchmark: Any, requests: int) -> None:
    step = inputs(requests)
    policies = {
        "vLLM's own": Greedy(),
        "with the guard": PredictedGain(Greedy(), 0.02),
        "and a scale": CostScale(PredictedGain(Greedy(), 0.02), 1.5),
    }
    taken: dict[str, list[float]] = {name: [] for name in policies}
    for _ in range(ROUNDS):
        for name, policy in policies.items():
            begin = time.perf_counter()
            policy.choose(step)
            taken[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(times) * 1e6 for name, times in taken.items()}
    own = medians["vLLM's own"]
    benchmark.extra_info |= {f"{name}, us": round(us, 1) for name, us in medians.items()}
    benchmark.extra_info |= {f"{name}, ratio": round(us / own, 3) for name, us in medians.items()}
    benchmark(policies["with the guard"].choose, step)
    print("\n", requests, benchmark.extra_info)
    assert medians["with the guard"] < 1.5 * own
