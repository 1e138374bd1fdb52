# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which drafters' layers are selected as if there were no adaptive verification."""

import pytest
import torch

import vllm.compilation.backends as compilation_backends
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.v1.attention import selector


@pytest.mark.parametrize(
    ("tag", "required"),
    [
        # Blocks of one length, whatever was trimmed.
        ("dflash_head", False),
        ("dspark_head", False),
        # Prefill reads the query lengths of the trimmed batch.
        ("eagle_head", True),
        ("draft_model", True),
        # The target.
        ("backbone", True),
    ],
)
def test_only_block_drafters_are_exempt(tag, required, monkeypatch):
    class SpeculativeConfig:
        enable_adaptive_verification = True
        num_speculative_tokens = 3
        parallel_drafting = False
        draft_model_config = object()

    asked = []

    def select(backend, attn_selector_config, **kwargs):
        asked.append(attn_selector_config.use_adaptive_verification)

    monkeypatch.setattr(selector, "_cached_get_attn_backend", select)
    vllm_config = VllmConfig()
    vllm_config.speculative_config = SpeculativeConfig()
    monkeypatch.setattr(compilation_backends, "model_tag", tag)
    with set_current_vllm_config(vllm_config):
        selector.get_attn_backend(64, torch.bfloat16, None)
    assert asked == [required]
