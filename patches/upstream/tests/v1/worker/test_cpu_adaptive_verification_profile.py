# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The CPU worker measures what a step costs when it warms up."""

import contextlib
from types import SimpleNamespace

import pytest

import vllm.envs as envs
from vllm.config import VllmConfig
from vllm.platforms import current_platform

if not current_platform.is_cpu():
    pytest.skip("CPU only", allow_module_level=True)

from vllm.v1.worker.cpu.model_runner import CPUModelRunner  # noqa: E402
from vllm.v1.worker.cpu_worker import CPUWorker  # noqa: E402

SIZES = [1, 2, 4]
REPLAYS = 3


class Timing:
    """Notes which batches run while steps are timed."""

    timed = False

    @contextlib.contextmanager
    def collect(self):
        self.timed = True
        yield ["samples"]
        self.timed = False


@pytest.fixture
def runner():
    runner = CPUModelRunner.__new__(CPUModelRunner)
    runner.step_timing = Timing()
    runner.runs = []
    runner._dummy_run = lambda **batch: runner.runs.append(
        (batch["num_tokens"], batch["context_len"], runner.step_timing.timed)
    )
    runner.curves = []

    def observe_verification(*args, warm_up):
        assert warm_up
        runner.runs.append("scorer's kernels")

    runner.speculator = SimpleNamespace(observe_verification=observe_verification)
    batches = [
        {"num_tokens": n, "context_len": 7} for n in SIZES for _ in range(REPLAYS)
    ]
    runner.adaptive_verification = SimpleNamespace(
        batches_to_profile=lambda capture_sizes: batches if not capture_sizes else [],
        set_initial_cost_curves=runner.curves.append,
        warm_up=lambda: runner.runs.append("manager's kernels"),
    )
    runner.kv_caches = ["one"]
    return runner


def make_worker(runner, use_v2_model_runner=True):
    worker = CPUWorker.__new__(CPUWorker)
    worker.model_runner = runner
    worker.use_v2_model_runner = use_v2_model_runner
    worker.vllm_config = SimpleNamespace(
        kernel_config=SimpleNamespace(enable_jit_warmup=False)
    )
    worker.model_config = SimpleNamespace(seed=0)
    worker.parallel_config = SimpleNamespace(data_parallel_index=0)
    worker.compilation_config = SimpleNamespace(
        compilation_time=0.0, encoder_compilation_time=0.0
    )
    return worker


def test_steps_are_timed_when_all_is_compiled(runner):
    make_worker(runner).compile_or_warm_up_model()
    compiled = ["scorer's kernels", "manager's kernels"]
    untimed = [(n, 7, False) for n in SIZES]
    timed = [(n, 7, True) for n in SIZES]
    # In turn: other load on the machine does not hit all runs of one size.
    assert runner.runs == compiled + untimed + timed * REPLAYS
    assert runner.curves == [["samples"]]


def test_nothing_runs_without_adaptive_verification(runner):
    runner.adaptive_verification = None
    make_worker(runner).compile_or_warm_up_model()
    assert runner.runs == []


def test_the_v1_runner_has_nothing_to_profile():
    v1_runner = SimpleNamespace(kv_caches=["one"])
    make_worker(v1_runner, use_v2_model_runner=False).compile_or_warm_up_model()


def test_context_is_short_unless_it_is_set(monkeypatch):
    name = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"
    monkeypatch.setenv(name, "64")
    VllmConfig()
    assert envs.VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN == 64
    monkeypatch.delenv(name)
    VllmConfig()
    assert envs.VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN == 512
