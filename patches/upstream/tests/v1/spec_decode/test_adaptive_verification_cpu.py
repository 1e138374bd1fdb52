# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The CPU replays no graphs, so adaptive verification needs none there."""

from types import SimpleNamespace

import pytest

from vllm.config import VllmConfig
from vllm.config.compilation import CUDAGraphMode
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionCGSupport
from vllm.v1.worker.gpu.spec_decode import adaptive_verification as module

NONE = CUDAGraphMode.NONE
NO_GRAPHS = (AttentionCGSupport.NEVER, "NoGraphs")


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(current_platform, "is_cpu", lambda: True)


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(current_platform, "is_cpu", lambda: False)


def make_config(mode):
    config = VllmConfig()
    config.speculative_config = SimpleNamespace(
        enable_adaptive_verification=True,
        estimates_acceptance=lambda: True,
        method="eagle",
        num_speculative_tokens=3,
        parallel_drafting=False,
        use_local_argmax_reduction=False,
    )
    config.compilation_config.cudagraph_mode = mode
    return config


@pytest.fixture
def make_manager(monkeypatch):
    monkeypatch.setattr(module, "AdaptiveVerificationManager", lambda *a, **k: "made")

    def make_manager():
        return module.maybe_create_adaptive_verification_manager(
            enable_adaptive_verification=True,
            attn_groups=[],
            req_states=SimpleNamespace(num_speculative_steps=3, device=None),
            query_start_loc=None,
            num_bonus_tokens=1,
            max_total_logits=1,
            vllm_config=None,
            additional_attn_cg_support=NO_GRAPHS,
        )

    return make_manager


def resolve(mode):
    return module.resolve_adaptive_cudagraph_mode(
        mode, piecewise_capture_available=True
    )


@pytest.mark.usefixtures("on_cpu")
def test_cpu_needs_no_graphs(make_manager):
    make_config(NONE)._validate_adaptive_verification()
    assert resolve(NONE) == NONE
    assert make_manager() == "made"


@pytest.mark.usefixtures("on_gpu")
def test_other_platforms_need_full_graphs(make_manager):
    with pytest.raises(ValueError, match="requires full CUDA graphs"):
        make_config(NONE)._validate_adaptive_verification()
    assert resolve(CUDAGraphMode.FULL) == CUDAGraphMode.FULL_AND_PIECEWISE
    with pytest.raises(ValueError, match="but NoGraphs allows none"):
        make_manager()
