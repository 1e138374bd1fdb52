"""No kernel of the scorers, and nothing of the budget, is compiled while requests wait.

With ``core/warm-adaptive-verification``; ``NUM_STEPS`` is a constant of the kernels, and no other
test drafts as many, so that none has compiled them before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tests.engine import models
from tests.engine.harness import Engine
from tests.engine.sampling import tiny_engine

PROMPTS = [[n % 8, 3 * n % 8, 5, (n * n) % 8] for n in range(4)]
ONLINE, POOLED = "online_estimator", "pooled_estimator"
UNUSUAL = {ONLINE: 9, POOLED: 11}


@contextmanager
def compiled() -> Iterator[list[str]]:
    """The scorers' kernels that are compiled inside the block."""
    from vllm_av.cpu.launcher import Launcher

    names: list[str] = []
    compile_ = Launcher._compile

    def spied(self: Any, *arguments: Any) -> Any:
        if self.function.__module__.startswith("vllm_av.estimator"):
            names.append(self.name)
        return compile_(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Launcher, "_compile", spied)
        yield names


def state(engine: Engine) -> dict[str, list[float]]:
    """What has been learnt, every label and counter of it."""
    return {
        name: tensor.flatten().tolist()
        for name, tensor in engine.scorer.scorer.state_tensors().items()
    }


@pytest.fixture(scope="module", params=[ONLINE, POOLED])
def started(
    request: pytest.FixtureRequest, random_pair: tuple[str, str]
) -> tuple[str, Engine, list[str]]:
    block = {"scorer": request.param, "estimator": {"refit_interval": 10}}
    with compiled() as names:
        engine = tiny_engine(random_pair, steps=UNUSUAL[request.param], block=block)
    return request.param, engine, names


def test_the_start_compiles_and_learns_nothing(started: tuple[str, Engine, list[str]]) -> None:
    name, engine, at_start = started
    assert {"observe_kernel", "refit_kernel"} < set(at_start)
    fresh = engine.new_scorer(scorer=name, estimator={"refit_interval": 10})
    assert engine.scorer.scorer is not fresh
    assert state(engine) == {
        key: tensor.flatten().tolist() for key, tensor in fresh.state_tensors().items()
    }


def test_the_steps_of_vllms_own_warm_up_teach_nothing(
    started: tuple[str, Engine, list[str]],
) -> None:
    """Which GPUs run; the CPU's worker has none."""
    from vllm.v1.worker.gpu.warmup import warmup_kernels

    _, engine, _ = started
    before, worker = state(engine), engine.llm.llm_engine.engine_core.engine_core.model_executor
    worker = worker.driver_worker.worker
    observed: list[int] = []
    scorer = engine.scorer
    warm_up, observe = scorer.warm_up, scorer.observe
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorer, "warm_up", lambda *told: (observed.append(1), warm_up(*told)))
        patch.setattr(scorer, "observe", lambda *told: (observed.append(2), observe(*told)))
        warmup_kernels(engine.runner, worker.execute_model, worker.sample_tokens)
    assert set(observed) == {1}
    assert state(engine) == before


def test_no_request_waits_for_a_compiler(
    started: tuple[str, Engine, list[str]], random_pair: tuple[str, str]
) -> None:
    _, engine, _ = started
    engine.price(8.0)
    with compiled() as names, engine.recorded() as steps:
        for batch in (1, 2, 4):
            tokens = engine.greedy(PROMPTS, batch=batch)
            assert tokens == [models.greedy(random_pair[0], prompt) for prompt in PROMPTS]
    assert names == []
    assert any(sum(step.admitted) < sum(step.scheduled) for step in steps)
    assert int(engine.scorer.snapshot()["refits"]) > 0


def test_what_the_budget_does_is_run_before(started: tuple[str, Engine, list[str]]) -> None:
    """For one request and for more, for one draft and for more."""
    _, engine, _ = started
    manager = engine.manager
    assigned: list[tuple[int, int]] = []

    def assign(
        confidence_probs: torch.Tensor, idx_mapping: torch.Tensor, capacities: torch.Tensor, n: int
    ) -> None:
        assert int(capacities.sum()) > n
        assert idx_mapping.dtype == torch.int64
        assigned.append((len(idx_mapping), n))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager._policy, "assign", assign)
        manager.warm_up()
    assert {(1, 1), (1, 2), (2, 1), (2, 2)} <= set(assigned)
    assert manager._batch_budget is None
