# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What adaptive verification switches over is said, and nothing where it is not."""

from dataclasses import fields as fields_of
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm.config.compilation import CUDAGraphMode
from vllm.models.kimi_k3.amd import kda_metadata
from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadata
from vllm.v1.attention.backends.mla import indexer
from vllm.v1.attention.backends.mla import rocm_paged_mxfp4_indexer as mxfp4
from vllm.v1.worker.gpu import cudagraph_utils
from vllm.v1.worker.gpu.spec_decode import adaptive_verification

NUM_DRAFTS = 3


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the modules above say, as often as they say it."""
    lines: list[str] = []
    for module in (
        adaptive_verification,
        cudagraph_utils,
        indexer,
        kda_metadata,
        mxfp4,
    ):
        # A module that says nothing need not have a logger.
        logger = SimpleNamespace(info_once=lambda text, *a: lines.append(text % a))
        monkeypatch.setattr(module, "logger", logger, raising=False)
    return lines


def config(adaptive: bool) -> Any:
    spec_config = SimpleNamespace(
        enable_adaptive_verification=adaptive,
        num_speculative_tokens=NUM_DRAFTS,
        uses_dynamic_speculative_decoding=lambda: False,
    )
    return SimpleNamespace(
        speculative_config=spec_config, num_speculative_tokens=NUM_DRAFTS
    )


@pytest.mark.parametrize(
    ("mode", "resolved"),
    [("FULL", "FULL_AND_PIECEWISE"), ("FULL_DECODE_ONLY", None)],
)
def test_graph_mode(
    mode: str,
    resolved: str | None,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    platform = SimpleNamespace(is_cpu=lambda: False)
    # Which only builds for the CPU ask for here.
    monkeypatch.setattr(
        adaptive_verification, "current_platform", platform, raising=False
    )
    adaptive_verification.resolve_adaptive_cudagraph_mode(
        CUDAGraphMode[mode], piecewise_capture_available=True
    )
    if resolved is None:
        assert told == []
    else:
        (line,) = told
        assert f"{resolved} instead of {mode}" in line


@pytest.mark.parametrize("adaptive", [True, False])
def test_decode_graphs(adaptive: bool, told: list[str]) -> None:
    manager = object.__new__(cudagraph_utils.CudaGraphManager)
    manager.vllm_config = config(adaptive)
    manager.vllm_config.cache_config = SimpleNamespace(use_kda_recoverssm=False)
    manager.compilation_config = SimpleNamespace(
        cudagraph_capture_sizes=[4, 8], max_cudagraph_capture_size=8
    )
    manager.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    manager.max_num_reqs = 2
    manager.decode_query_len = NUM_DRAFTS + 1
    manager.lora_capture_cases = [0]
    manager.varlen_decode = adaptive
    manager.ubatch_runner = None
    manager._candidates, manager._capture_descs = {}, {}
    manager._lora_dispatch_map, manager._max_lora_case = {}, 0
    manager._init_candidates()
    assert manager._capture_descs
    assert [f"1 to {NUM_DRAFTS + 1} tokens" in line for line in told] == [
        True
    ] * adaptive


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("native", [True, False])
def test_sparse_indexer(
    native: bool,
    adaptive: bool,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on Hopper, where some numbers of tokens a row are native."""
    monkeypatch.setattr(indexer, "_supports_native_decode", lambda next_n: native)
    monkeypatch.setattr(indexer, "_supports_flattened_device_query_lens", lambda: True)
    assert indexer._use_flattening(config(adaptive)) == (adaptive or not native)
    expected = f"one token per row instead of {NUM_DRAFTS + 1}"
    assert [expected in line for line in told] == [True] * (native and adaptive)


@pytest.mark.parametrize("adaptive", [True, False])
def test_mxfp4_indexer_on_rocm(
    adaptive: bool, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(self: Any, *args: Any) -> None:
        self.dcp_world_size, self.use_pcp, self.compress_ratio = 1, False, 1
        self.num_speculative_tokens = NUM_DRAFTS
        self.arange_buffer = torch.arange(8)

    builder = mxfp4.RocmMxfp4IndexerMetadataBuilder
    monkeypatch.setattr(builder.__base__, "__init__", init)
    monkeypatch.setattr(mxfp4, "rocm_paged_mxfp4_cache_layout", lambda *args: None)
    monkeypatch.setattr(mxfp4, "rocm_mxfp4_decode_schedule_words", lambda *args: 1)
    vllm_config = config(adaptive)
    vllm_config.model_config = SimpleNamespace(
        hf_config=None,
        hf_text_config=SimpleNamespace(index_n_heads=1, index_head_dim=8),
        max_model_len=64,
    )
    kv_cache_spec = SimpleNamespace(block_size=64)
    made = builder(kv_cache_spec, ["layer"], vllm_config, torch.device("cpu"))
    assert made.native_next_n == (1 if adaptive else NUM_DRAFTS + 1)
    expected = f"one token per row instead of {NUM_DRAFTS + 1}"
    assert [expected in line for line in told] == [True] * adaptive


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("query_len", [NUM_DRAFTS + 1, None])
def test_kda_on_rocm(
    query_len: int | None,
    adaptive: bool,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch whose requests verify equally many tokens, and one of several lengths."""
    fields = dict.fromkeys(field.name for field in fields_of(GDNAttentionMetadata))
    metadata = GDNAttentionMetadata(
        **fields | {"uniform_spec_sequence_length": query_len}
    )
    builder = object.__new__(kda_metadata.KimiK3ROCmKDAMetadataBuilder)
    builder.vllm_config = config(adaptive)
    base = kda_metadata.GDNAttentionMetadataBuilder
    monkeypatch.setattr(base, "build", lambda *args: metadata)
    built = builder.build(0, None)
    assert built.uniform_spec_sequence_length == (None if adaptive else query_len)
    expected = adaptive and query_len is not None
    assert ["equally many tokens" in line for line in told] == [True] * expected
