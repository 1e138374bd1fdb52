# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

import time

import pytest

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.async_utils import StepTimingCollector

if not current_platform.is_cpu():
    pytest.skip("CPU only", allow_module_level=True)

import vllm.v1.worker.cpu.shm  # noqa: E402, F401 (replaces torch.cuda's events)


class Batch:
    num_tokens = 12
    num_reqs = 3


def test_steps_are_timed(monkeypatch):
    # Starts and ends of the forward pass and of the drafter, in seconds.
    times = iter([1.0, 1.25, 1.25, 1.375, 2.0, 2.5, 2.5, 2.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    collector = StepTimingCollector()
    with collector.collect() as samples:
        for _ in range(2):
            collector.forward_start()
            collector.record_batch(Batch(), full_cudagraph=False)
            collector.forward_end()
            collector.drafter_start()
            collector.drafter_end()
    assert [(s.forward_ms, s.drafter_ms) for s in samples] == [(250, 125), (500, 0)]
    assert [(s.num_target_tokens, s.num_reqs) for s in samples] == [(12, 3)] * 2
