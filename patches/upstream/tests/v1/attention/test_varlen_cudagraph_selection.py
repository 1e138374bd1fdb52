# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""With adaptive verification, a target's backend has to replay mixed query lengths."""

from types import SimpleNamespace

import pytest
import torch

import vllm.compilation.backends as compilation_backends
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.v1.attention import selector
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionMetadataBuilder,
)

NUM_DRAFTS = 3
HEAD_SIZE = 64
NUM_KV_HEADS = 2


def make_backend(name, query_lens=True, graphs="ALWAYS", bound=None):
    class Builder(AttentionMetadataBuilder):
        _cudagraph_support = AttentionCGSupport[graphs]

        @classmethod
        def get_varlen_cudagraph_max_query_len(cls, vllm_config, kv_cache_spec):
            assert kv_cache_spec.head_size == HEAD_SIZE
            assert kv_cache_spec.num_kv_heads == NUM_KV_HEADS
            return bound

    class Backend(AttentionBackend):
        supported_dtypes = [torch.bfloat16]
        get_name = staticmethod(lambda: name)
        get_builder_cls = staticmethod(lambda: Builder)
        get_impl_cls = staticmethod(
            lambda: SimpleNamespace(supports_pcp=True, supports_dcp=True)
        )
        supports_device_cpu_query_lens_mismatch = staticmethod(lambda: query_lens)

    Backend.__name__ = Backend.__qualname__ = name
    globals()[name] = Backend
    return Backend


HOST_LENS = make_backend("HostLens", query_lens=False)
UNIFORM = make_backend("Uniform", graphs="UNIFORM_BATCH")
SHORT = make_backend("Short", graphs="UNIFORM_BATCH", bound=NUM_DRAFTS)
ENOUGH = make_backend("Enough", graphs="UNIFORM_BATCH", bound=NUM_DRAFTS + 1)
NO_GRAPHS = make_backend("NoGraphs", graphs="NEVER", bound=NUM_DRAFTS + 1)
ALWAYS = make_backend("Always")


class FakePlatform:
    """Selects the first of its backends that is valid."""

    device_name = "fake"

    def __init__(self, backends):
        self.backends = backends

    def get_attn_backend_cls(self, backend, attn_selector_config, num_heads=None):
        for each in [backend] if backend else self.backends:
            if not each.validate_configuration(
                device_capability=None, **attn_selector_config._asdict()
            ):
                return f"{__name__}.{each.__qualname__}"
        raise ValueError("No valid attention backend")


@pytest.fixture
def select(monkeypatch):
    vllm_config = VllmConfig()  # of the real platform

    def select(backends, named=None, tag="backbone", enabled=True, of_draft=False):
        model_config = SimpleNamespace(
            get_num_kv_heads=lambda _: NUM_KV_HEADS, rswa_window=None
        )
        vllm_config.model_config = model_config
        vllm_config.speculative_config = SimpleNamespace(
            enable_adaptive_verification=enabled,
            num_speculative_tokens=NUM_DRAFTS,
            parallel_drafting=False,
            draft_model_config=model_config if of_draft else SimpleNamespace(),
        )
        vllm_config.attention_config.backend = named
        platform = FakePlatform(backends)
        monkeypatch.setattr("vllm.platforms.current_platform", platform)
        monkeypatch.setattr(compilation_backends, "model_tag", tag)
        selector._cached_get_attn_backend.cache_clear()
        with set_current_vllm_config(vllm_config):
            return selector.get_attn_backend(HEAD_SIZE, torch.bfloat16, None)

    yield select
    selector._cached_get_attn_backend.cache_clear()


@pytest.mark.parametrize("tag", ["backbone", "self_decoder"])
@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        ([UNIFORM, ALWAYS], ALWAYS),
        ([HOST_LENS, SHORT, NO_GRAPHS, ENOUGH, ALWAYS], ENOUGH),
        ([ALWAYS, ENOUGH], ALWAYS),
        # None can: left to the check of the built target, which says why.
        ([UNIFORM, SHORT], UNIFORM),
        ([HOST_LENS, NO_GRAPHS], HOST_LENS),
    ],
)
def test_target_gets_the_first_backend_that_can(backends, expected, tag, select):
    assert select(backends, tag=tag) is expected
    assert select(backends, tag=tag, enabled=False) is backends[0]


@pytest.mark.parametrize("named", [HOST_LENS, UNIFORM, SHORT, NO_GRAPHS])
def test_named_backend_is_left_to_the_later_check(named, select):
    assert select([ALWAYS], named=named) is named


@pytest.mark.parametrize(
    "kwargs", [{"tag": "eagle_head"}, {"tag": "self_decoder", "of_draft": True}]
)
def test_draft_layers_replay_no_such_graphs(kwargs, select):
    assert select([HOST_LENS, UNIFORM, ALWAYS], **kwargs) is UNIFORM
    with pytest.raises(ValueError, match="No valid attention backend"):
        select([HOST_LENS], **kwargs)
