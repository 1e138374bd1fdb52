# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""FlashInfer MLA decodes queries of mixed lengths unless it has to return LSE."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("flashinfer")

from vllm.v1.attention.backend import AttentionCGSupport  # noqa: E402
from vllm.v1.attention.backends.mla.flashinfer_mla import (  # noqa: E402
    FlashInferMLAMetadataBuilder,
)
from vllm.v1.kv_cache_interface import MLAAttentionSpec  # noqa: E402


@pytest.mark.parametrize(
    ("dcp_size", "dcp_sharded", "expected"),
    [
        (1, True, AttentionCGSupport.ALWAYS),
        (2, True, AttentionCGSupport.UNIFORM_BATCH),
        # All ranks hold the whole cache: nothing is combined.
        (2, False, AttentionCGSupport.ALWAYS),
    ],
)
def test_cudagraph_support(dcp_size, dcp_sharded, expected):
    vllm_config = SimpleNamespace(
        parallel_config=SimpleNamespace(decode_context_parallel_size=dcp_size)
    )
    spec = MLAAttentionSpec(
        block_size=64,
        num_kv_heads=1,
        head_size=576,
        dtype=torch.bfloat16,
        dcp_sharded=dcp_sharded,
    )
    support = FlashInferMLAMetadataBuilder.get_cudagraph_support(vllm_config, spec)
    assert support == expected
