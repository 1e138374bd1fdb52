"""Batch-sharded sampling on two ranks, new in vLLM 0.33.0 beside adaptive verification.

Each rank samples some of the requests, so that the host must know how many drafts each of them
kept: nowhere else does it learn that.
"""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine import models
from tests.engine.harness import TOKENS, greedy_tokens, in_processes, speculation
from tests.engine.sampling import TINY_STEPS, tiny_changes
from vllm_av.replay.trace import read

PROMPTS = [[n % 8, 3 * n % 8, 5, (n * n) % 8] for n in range(8)]
BUDGET = 12  # of 24 drafts


@pytest.fixture
def sharded(
    random_pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """``vllm.LLM`` with its core and two workers, all in processes of their own."""
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import AdaptiveVerificationManager

    if (
        "copy_admitted_drafts_to_host"
        not in inspect.signature(AdaptiveVerificationManager).parameters
    ):
        pytest.skip("vLLM before 0.33.0 shards no batch under adaptive verification")
    monkeypatch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")  # for this file's functions
    with started(random_pair, tmp_path, trace=str(tmp_path / "t")) as llm:
        yield llm


def started(pair: tuple[str, str], folder: Path, **block: Any) -> AbstractContextManager[Any]:
    """Two ranks, with their state kept in ``folder`` and much explored."""
    target, draft = pair
    block |= {"state_file": str(folder / "state"), "exploration": 0.2}
    spec = speculation(draft, "draft_model", True, TINY_STEPS, block)
    ranks = {"tensor_parallel_size": 2, "enable_batch_sharded_sampling": True}
    return in_processes(target, spec, **tiny_changes(), **ranks)


def cap_and_record(worker: Any) -> None:
    """In a worker: give eight requests room for ``BUDGET`` drafts, and keep what came of it."""
    manager = worker.model_runner.adaptive_verification
    free = len(PROMPTS) + BUDGET
    curve = [(1, 1.0), (free, 1.0), (free + 1, 1e9), (worker.model_runner.max_num_tokens, 1e9)]
    manager.set_cost_curves([(1, 0.0)], curve)
    reallocate, manager.seen = manager.reallocate_drafts, []

    def wrapped(*arguments: Any) -> Any:
        result = reallocate(*arguments)
        starts, *_, on_host = result
        if on_host is not None:
            on_device = starts.diff() - manager.num_bonus_tokens
            manager.seen.append((on_device.tolist(), on_host.wait().tolist()))
        return result

    manager.reallocate_drafts = wrapped


def seen(worker: Any) -> list[tuple[list[int], list[int]]]:
    """In a worker: admitted drafts of each trimmed step, on the device and as the host knows."""
    return list(worker.model_runner.adaptive_verification.seen)


def learnt(worker: Any) -> dict[str, Any]:
    """In a worker: the state of the estimator."""
    scorer = worker.model_runner.speculator.acceptance_scorer
    while not hasattr(scorer, "state_tensors"):
        scorer = scorer.scorer
    return {name: tensor.numpy().copy() for name, tensor in scorer.state_tensors().items()}


def constrain_all(llm: Any) -> None:
    """Eight requests, each sampled by one of the ranks, that are all kept from teaching."""
    from vllm import SamplingParams

    requests = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    params = SamplingParams(
        temperature=1.0, top_k=3, max_tokens=8, ignore_eos=True, detokenize=False
    )
    llm.generate(requests, params, use_tqdm=False)


def assert_same(state: dict[str, Any], other: dict[str, Any]) -> None:
    assert state.keys() == other.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(other[name], value)


def test_the_host_knows_what_each_request_kept(
    sharded: Any, random_pair: tuple[str, str], tmp_path: Path
) -> None:
    sharded.collective_rpc(cap_and_record)
    tokens = greedy_tokens(sharded, PROMPTS)
    assert tokens == [models.greedy(random_pair[0], prompt, TOKENS) for prompt in PROMPTS]
    first, second = sharded.collective_rpc(seen)
    assert first == second
    assert all(on_device == on_host for on_device, on_host in first)
    assert any(len(set(on_host)) > 1 for _, on_host in first)
    # Both learn the same, and neither from a request that the other one samples.
    state, other = sharded.collective_rpc(learnt)
    assert_same(state, other)
    constrain_all(sharded)
    masked, other = sharded.collective_rpc(learnt)
    assert_same(masked, other)
    assert masked["masked"].sum() > state["masked"].sum() == 0
    # One of the ranks has recorded it.
    sharded.llm_engine.engine_core.shutdown()
    trace = read(tmp_path / "t")
    verified = [sum(on_host) for _, on_host in first]
    assert trace["verified"].sum() >= sum(verified) > 0
    assert len(set(trace["request"])) == 2 * len(PROMPTS)
    # And one has kept what they learnt; both go on from it.
    with np.load(tmp_path / "state", allow_pickle=False) as file:
        kept = {name: file[name] for name in masked}
    assert kept["counters"][0] > 5
    with started(random_pair, tmp_path) as again:
        for found in again.collective_rpc(learnt):
            assert_same(kept, found)
