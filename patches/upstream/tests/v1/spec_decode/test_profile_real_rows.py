# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from vllm import envs
from vllm.platforms import current_platform
from vllm.v1.worker.gpu import model_runner
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
    maybe_create_adaptive_verification_manager,
)

if current_platform.is_cpu():
    import vllm.v1.worker.cpu.shm  # noqa: F401 (replaces torch.cuda's streams)

DEVICE = torch.device(current_platform.device_type)
SWITCH = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS"


class DummyMade(Exception):
    """Stops the runner where it has made its dummy batch."""


@pytest.fixture(autouse=True)
def fresh_envs():
    envs.disable_envs_cache()


def batches():
    req_states = SimpleNamespace(
        num_speculative_steps=3,
        max_num_reqs=8,
        max_num_batched_tokens=64,
        device=DEVICE,
    )
    manager = maybe_create_adaptive_verification_manager(
        enable_adaptive_verification=True,
        attn_groups=[],
        req_states=req_states,
        query_start_loc=torch.empty(9, dtype=torch.int32, device=DEVICE),
        num_bonus_tokens=1,
        max_total_logits=1 << 20,
        vllm_config=None,
    )
    return list(manager.batches_to_profile([8, 16]))


def run(batch, monkeypatch):
    """How the runner fills the rows of a dummy batch: padding, and tokens."""
    seen = {}

    def make_dummy(num_reqs, num_tokens, *args, is_padding=True, **kwargs):
        input_ids = MagicMock()
        seen.update(is_padding=is_padding, input_ids=input_ids, num_tokens=num_tokens)
        return SimpleNamespace(input_ids=input_ids)

    monkeypatch.setattr(model_runner.InputBatch, "make_dummy", make_dummy)
    runner = MagicMock()
    runner.max_num_reqs, runner.max_num_tokens, runner.vocab_size = 8, 64, 1000
    runner.speculator = None
    runner.lora_config = None
    runner.dp_size = 1
    runner.gather_batch_req_state.return_value = None, None
    runner.prepare_dummy_attn.side_effect = DummyMade
    runner.pcp_manager = None
    descriptor = SimpleNamespace(
        cg_mode=None, num_tokens=batch["num_tokens"], num_reqs=8, max_query_len=None
    )
    monkeypatch.setattr(
        model_runner,
        "dispatch_cg_and_sync_dp",
        lambda *args, **kwargs: (descriptor, None),
    )
    runner.execute_model = lambda *args, **kwargs: GPUModelRunner.execute_model(
        runner, *args, **kwargs
    )
    with pytest.raises(DummyMade):
        GPUModelRunner._dummy_run(runner, **batch)
    return seen


@pytest.mark.parametrize("value", [None, "1"])
def test_costs_are_profiled_with_rows_that_are_routed(monkeypatch, value):
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    for batch in batches():
        seen = run(batch, monkeypatch)
        assert seen["num_tokens"] == batch["num_tokens"]
        assert seen["is_padding"] is False
        seen["input_ids"].random_.assert_called_once_with(0, 1000)


def test_costs_can_be_profiled_with_padding(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    for batch in batches():
        seen = run(batch, monkeypatch)
        assert seen["is_padding"] is True
        seen["input_ids"].random_.assert_not_called()


def test_other_dummy_runs_stay_padding(monkeypatch):
    seen = run({"num_tokens": 16}, monkeypatch)
    assert seen["is_padding"] is True
    seen["input_ids"].random_.assert_not_called()


def test_compiled_graphs_do_not_depend_on_it():
    assert getattr(envs, SWITCH) is True
    assert SWITCH not in envs.compile_factors()
