"""How fast the estimators are on the CPU, against vLLM's own: ratios within one run, on one thread.

    predict + observe / vLLM's    batch 64, K 7, vocabulary 49,152    at most 1.20

for online_estimator, and for pooled_estimator beside it. A decode step is seven predictions and one
observation; a refit is timed beside it. All take turns at each call, in another order each time, on
the same logits, and the fastest of each call counts: a busy machine slows all of them.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tests.engine.harness import ENVIRONMENT

os.environ.update(ENVIRONMENT)

import pytest
import torch

from vllm_av.cpu import install

REQUESTS, STEPS, VOCAB = 64, 7, 49_152
ROUND = 10
CPU = torch.device("cpu")

pytestmark = [pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_against_vllms_own(benchmark: Any, dtype: torch.dtype, temperature: float) -> None:
    from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import OnlineAcceptanceEstimator

    from vllm_av.estimator.online import OnlineEstimator
    from vllm_av.estimator.settings import EstimatorSettings
    from vllm_av.estimator.tempered.online import TemperedEstimator

    install()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    theirs = OnlineAcceptanceEstimator(REQUESTS, STEPS, CPU)
    theirs.REFIT_INTERVAL = ROUND
    settings = EstimatorSettings(refit_interval=ROUND)
    mixed = TemperedEstimator(settings, REQUESTS, STEPS, CPU)
    pooled = OnlineEstimator(settings, REQUESTS, STEPS, CPU)
    estimators = {"online": mixed, "pooled": pooled, "vLLM's": theirs}
    names = list(estimators)

    # Drafts as certain as real ones: the top token's log-odds are between -2 and 8.
    logits = [torch.randn(REQUESTS, VOCAB) * 2 for _ in range(STEPS)]
    for rows in logits:
        rows[:, 7] = rows.logsumexp(-1) + torch.empty(REQUESTS).uniform_(-2, 8)
    logits = [rows.to(dtype) for rows in logits]
    temperatures, out = torch.full((REQUESTS,), temperature), torch.zeros(REQUESTS, STEPS)
    mapping = torch.randperm(REQUESTS, dtype=torch.int32)
    accepted = torch.randint(0, STEPS + 1, (REQUESTS,), dtype=torch.int32)
    steps = [torch.tensor(k) for k in range(STEPS)]

    times: defaultdict[str, list[float]] = defaultdict(list)
    refits = dict.fromkeys(names, 0)
    turns = 0

    def refits_of(estimator: Any) -> int:
        return int(estimator._refits if estimator is theirs else estimator.refits)

    def timed(what: str, call: Callable[[Any], None]) -> None:
        nonlocal turns
        turns += 1
        for name in names[turns % 3 :] + names[: turns % 3]:
            start = time.perf_counter()
            call(estimators[name])
            taken = time.perf_counter() - start
            refitted = refits_of(estimators[name]) - refits[name]
            refits[name] += refitted
            times[f"{name}, {what}{' and refit' if refitted else ''}"].append(taken)

    def step() -> None:
        for k, rows in enumerate(logits):
            given = (rows, mapping, steps[k], temperatures, out)
            timed(f"predict {k}", lambda e, given=given: e.predict(*given))
        timed("observe", lambda e: e.observe(mapping, accepted + 1, STEPS - accepted))

    benchmark.pedantic(step, rounds=60, warmup_rounds=0)
    # Refits after steps 1, 2, 4, 8 and then every ten; the others' every ten.
    assert [refits_of(each) for each in estimators.values()] == [9, 6, 6]
    best = {name: min(taken[2:]) for name, taken in times.items()}
    for name in names:
        best[f"{name}, predict"] = sum(best.pop(f"{name}, predict {k}") for k in range(STEPS))
        best[name] = best[f"{name}, predict"] + best[f"{name}, observe"]
    benchmark.extra_info.update(
        {f"{name} ms": round(seconds * 1e3, 3) for name, seconds in sorted(best.items())}
        | {
            "online / vLLM's (bar 1.20)": round(best["online"] / best["vLLM's"], 3),
            "pooled / vLLM's": round(best["pooled"] / best["vLLM's"], 3),
            "threads": torch.get_num_threads(),
        }
    )
