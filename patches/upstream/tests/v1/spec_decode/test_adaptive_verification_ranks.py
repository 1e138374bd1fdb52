# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Ranks that share a batch must keep the same drafts of it.

Two processes drive the manager as two ranks of one engine would: the same batches,
with acceptance estimates that are not quite the same. This file is run as a script in
each of them, which needs no way to import it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.spec_decode import adaptive_verification

WORLD_SIZE = 2
NUM_STEPS = 500
MAX_NUM_REQS = 8
NUM_DRAFTS = 5
# A verified token costs 1, so drafts pay while their survival exceeds about 1 / 3.
FIXED_COST = 16.0

LAYOUTS = {
    "tp": {"tensor_model_parallel_size": WORLD_SIZE},
    "pcp": {"prefill_context_model_parallel_size": WORLD_SIZE},
}
# What is wrong with the estimates of one rank.
FAULTS = ("rounding", "nan on rank 0", "nan on rank 1")

Decision = tuple[int, list[int]]  # the budget and each request's share of it


def connect(rank: int, init_file: str) -> torch.device:
    from vllm.distributed.parallel_state import init_distributed_environment

    if current_platform.is_cpu():
        import vllm.v1.worker.cpu.shm  # noqa: F401  (stands in for streams and events)

        os.environ["VLLM_DIST_IDENT"] = init_file.replace("/", "-")
        device = torch.device("cpu")
        torch._dynamo.config.disable = True
    else:
        device = torch.device(current_platform.device_type, rank)
        torch.accelerator.set_device_index(rank)
    init_distributed_environment(
        WORLD_SIZE,
        rank,
        f"file://{init_file}",
        local_rank=rank,
        backend=current_platform.dist_backend,
    )
    return device


def make_manager(device: torch.device) -> Any:
    req_states = SimpleNamespace(
        num_speculative_steps=NUM_DRAFTS,
        max_num_reqs=MAX_NUM_REQS,
        max_num_batched_tokens=MAX_NUM_REQS * (NUM_DRAFTS + 1),
        device=device,
        req_id_to_index={},
        num_computed_tokens_np=np.full(MAX_NUM_REQS, 9, dtype=np.int32),
        prefill_len=SimpleNamespace(np=np.full(MAX_NUM_REQS, 9, dtype=np.int32)),
    )
    return adaptive_verification.maybe_create_adaptive_verification_manager(
        enable_adaptive_verification=True,
        attn_groups=[],
        req_states=req_states,
        query_start_loc=torch.empty(MAX_NUM_REQS + 1, dtype=torch.int32, device=device),
        num_bonus_tokens=1,
        max_total_logits=1 << 20,
        vllm_config=None,
    )


def decide(rank: int, fault: str, device: torch.device) -> list[Decision]:
    """Serve requests that come and go, and note what each step keeps."""
    manager = make_manager(device)
    states = manager.req_states
    # Each rank has timed for itself, and not the same.
    sizes = range(1, states.max_num_batched_tokens + 1)
    manager.set_cost_curves([(1, 0.0)], [(n, FIXED_COST + n + rank) for n in sizes])
    rng = np.random.default_rng(0)  # the same on every rank
    noise = np.random.default_rng(1 + rank)
    decisions = []
    for step in range(NUM_STEPS):
        for slot in range(MAX_NUM_REQS):
            if step == 0 or rng.random() < 0.1:
                old = [r for r, i in states.req_id_to_index.items() if i == slot]
                for req_id in old:
                    del states.req_id_to_index[req_id]
                states.req_id_to_index[f"{slot}-{step}"] = slot
                manager.add_request(slot)
        req_ids = list(states.req_id_to_index)
        rng.shuffle(req_ids)
        slots = [states.req_id_to_index[req_id] for req_id in req_ids]
        idx_mapping = torch.tensor(slots, device=device)

        drafts = {r: [0] * rng.integers(1, NUM_DRAFTS + 1) for r in req_ids}
        scheduled = {r: len(drafts[r]) + 1 for r in req_ids}
        num_tokens = manager.get_num_tokens(scheduled, drafts)
        cu_num_logits = manager.reallocate_drafts(req_ids, idx_mapping)[0]
        admitted = (cu_num_logits.diff() - 1).tolist()
        decisions.append((num_tokens - len(req_ids), admitted))

        estimates = rng.uniform(0.3, 1.0, (MAX_NUM_REQS, NUM_DRAFTS))
        if fault == "rounding":
            estimates += noise.uniform(-1e-3, 1e-3, estimates.shape)
        elif fault == f"nan on rank {rank}" and step % 10 == 0:
            estimates[step // 10 % MAX_NUM_REQS, 0] = np.nan
        probs = torch.tensor(estimates, dtype=torch.float32, device=device)
        batch = SimpleNamespace(num_reqs=len(req_ids), idx_mapping=idx_mapping)
        manager.record_confidences(probs, batch)
    return decisions


@torch.inference_mode()
def decide_all(rank: int, device: torch.device) -> dict[str, list[Decision]]:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    found = {}
    with set_current_vllm_config(VllmConfig()):
        for layout, sizes in LAYOUTS.items():
            parallel_state.initialize_model_parallel(**sizes)
            for fault in FAULTS:
                found[f"{layout}, {fault}"] = decide(rank, fault, device)
            parallel_state.destroy_model_parallel()
    return found


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank decided, by layout and fault."""
    if not current_platform.is_cpu() and torch.accelerator.device_count() < WORLD_SIZE:
        pytest.skip(f"needs {WORLD_SIZE} devices")
    folder: Path = tmp_path_factory.mktemp("ranks")
    results = [folder / f"{rank}.json" for rank in range(WORLD_SIZE)]
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(folder / "init"), str(result)]
        )
        for rank, result in enumerate(results)
    ]
    try:
        assert [process.wait(timeout=600) for process in ranks] == [0] * WORLD_SIZE
    finally:
        for process in ranks:
            process.kill()
    return [json.loads(result.read_text()) for result in results]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_keep_the_same_drafts(
    layout: str, fault: str, decisions: list[dict[str, Any]]
) -> None:
    first, second = (found[f"{layout}, {fault}"] for found in decisions)
    assert len(first) == NUM_STEPS
    assert len({budget for budget, _ in first}) > 5  # there is something to decide
    assert all(sum(admitted) == budget for budget, admitted in first)
    assert [budget for budget, _ in first] == [budget for budget, _ in second]
    assert first == second


def test_ranks_agree_through_the_communicator_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch would open another one for its broadcast, in the middle of serving."""
    seen = []
    pynccl = SimpleNamespace(disabled=False, broadcast=lambda *args: seen.append(args))
    with_pynccl = SimpleNamespace(
        device_communicator=SimpleNamespace(pynccl_comm=pynccl)
    )
    alone = SimpleNamespace(
        device_communicator=None, broadcast=lambda *args, src: seen.append((*args, src))
    )
    monkeypatch.setattr(adaptive_verification, "get_tp_group", lambda: with_pynccl)
    monkeypatch.setattr(adaptive_verification, "get_pcp_group", lambda: alone)
    manager = adaptive_verification.AdaptiveVerificationManager.__new__(
        adaptive_verification.AdaptiveVerificationManager
    )
    manager._confidence_probs = torch.ones(2, 3)
    manager._agree_on_confidences()
    assert len(seen) == 2
    assert all(tensor is manager._confidence_probs for tensor, _ in seen)
    assert [src for _, src in seen] == [0, 0]


if __name__ == "__main__":
    _, number, init_file, result = sys.argv
    found = decide_all(int(number), connect(int(number), init_file))
    Path(result).write_text(json.dumps(found))
