# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

from types import SimpleNamespace

import pytest
import torch

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import (
    cleanup_dist_env_and_memory,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.platforms import current_platform
from vllm.v1.worker.gpu.async_utils import StepTimingSample
from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
    build_cost_tables_from_curves,
    maybe_create_adaptive_verification_manager,
)

if current_platform.is_cpu():
    import vllm.v1.worker.cpu.shm  # noqa: F401 (replaces torch.cuda's streams)

DEVICE = torch.device(current_platform.device_type)


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory):
    init_method = f"file://{tmp_path_factory.mktemp('ranks')}/init"
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(
            1, 0, init_method, local_rank=0, backend=current_platform.dist_backend
        )
        initialize_model_parallel()
        yield
    cleanup_dist_env_and_memory()


def make_manager(max_num_reqs=8, max_num_tokens=512):
    req_states = SimpleNamespace(
        num_speculative_steps=5,
        max_num_reqs=max_num_reqs,
        max_num_batched_tokens=max_num_tokens,
        device=DEVICE,
    )
    return maybe_create_adaptive_verification_manager(
        enable_adaptive_verification=True,
        attn_groups=[],
        req_states=req_states,
        query_start_loc=torch.empty(max_num_reqs + 1, dtype=torch.int32, device=DEVICE),
        num_bonus_tokens=1,
        max_total_logits=1 << 20,
        vllm_config=None,
    )


def profiled_sizes(manager, capture_sizes):
    batches = manager.batches_to_profile(capture_sizes)
    return list(dict.fromkeys(batch["num_tokens"] for batch in batches))


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(current_platform, "is_cpu", lambda: True)


def test_powers_of_two_up_to_the_largest_verification_batch():
    assert profiled_sizes(make_manager(), []) == [1, 2, 4, 8, 16, 32, 48]
    assert profiled_sizes(make_manager(max_num_tokens=20), []) == [1, 2, 4, 8, 16, 20]


def test_captured_sizes_stay_as_they_are(monkeypatch):
    sizes = [8, 64, 96, 128, 256, 512]
    assert profiled_sizes(make_manager(), [8, 64]) == sizes
    monkeypatch.setattr(current_platform, "is_cpu", lambda: False)
    assert profiled_sizes(make_manager(), [8, 64]) == sizes
    assert profiled_sizes(make_manager(), []) == []


@pytest.mark.parametrize("captured", [False, True])
def test_which_steps_price_the_drafter(captured):
    manager = make_manager()
    curves = {}
    manager.set_cost_curves = lambda draft, verify: curves.update(
        draft=draft, verify=verify
    )
    for _ in manager.batches_to_profile([8] if captured else []):
        pass
    manager.set_initial_cost_curves(
        [StepTimingSample(float(n), n / 2, n, n // 2, n == 8) for n in (4, 8)]
    )
    assert curves["verify"] == [(4, 4.0), (8, 8.0)]
    # Where graphs are captured, only their replays do; else there is one mode only.
    priced = [(4, 4.0)] if captured else [(2, 2.0), (4, 4.0)]
    assert curves["draft"] == priced


def test_tables_step_where_sizes_pad_and_are_smooth_elsewhere():
    curve = [(1, 10.0), (4, 40.0)]

    def verify_costs(*limit):
        _, verify = build_cost_tables_from_curves(curve, curve, 6, 6, *limit)
        return verify[1:].tolist()

    padded = [10, 40, 40, 40, 50, 60]
    assert verify_costs() == padded
    assert verify_costs(4) == padded
    # Nothing is captured, nothing pads: a verified token always costs something.
    assert verify_costs(0) == [10, 20, 30, 40, 50, 60]
