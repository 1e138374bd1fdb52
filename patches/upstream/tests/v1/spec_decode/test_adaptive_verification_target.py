# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The target's attention layers are checked before their weights are loaded."""

from types import SimpleNamespace

import pytest
import torch

from vllm.config.load import LoadConfig
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader import base_loader
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionCGSupport
from vllm.v1.worker.gpu.model_runner import GPUModelRunner

NUM_DRAFTS = 3


def make_layer(name, query_lens=True, graphs="ALWAYS", bound=None, has_kv_cache=True):
    class Builder:
        @staticmethod
        def get_cudagraph_support(_vllm_config, _kv_cache_spec):
            return AttentionCGSupport[graphs]

        @staticmethod
        def get_varlen_cudagraph_max_query_len(_vllm_config, _kv_cache_spec):
            return bound

    class Backend:
        supports_device_cpu_query_lens_mismatch = staticmethod(lambda: query_lens)
        get_builder_cls = staticmethod(lambda: Builder)

    class Layer(AttentionLayerBase):
        def get_attn_backend(self):
            return Backend

        def get_kv_cache_spec(self, vllm_config):
            return object() if has_kv_cache else None

    Backend.__name__ = name
    return Layer()


WIDE = make_layer("Wide")
HOST_LENS = make_layer("HostLens", query_lens=False)
UNIFORM = make_layer("Uniform", graphs="UNIFORM_BATCH")
SHORT = make_layer("Short", graphs="UNIFORM_BATCH", bound=NUM_DRAFTS)
ENOUGH = make_layer("Enough", graphs="UNIFORM_BATCH", bound=NUM_DRAFTS + 1)
NO_GRAPHS = make_layer("NoGraphs", graphs="NEVER", bound=NUM_DRAFTS + 1)
NO_KV_CACHE = make_layer("NoKVCache", query_lens=False, has_kv_cache=False)


class Loader(base_loader.BaseModelLoader):
    def download_model(self, model_config):
        pass

    def load_weights(self, model, model_config):
        pass


@pytest.fixture
def create(monkeypatch):
    """Create a model that has these layers; its weights would be loaded next."""

    def create(layers, enabled=True, is_draft=False):
        draft_config, target_config = SimpleNamespace(), SimpleNamespace()
        vllm_config = SimpleNamespace(
            compilation_config=SimpleNamespace(static_forward_context={}),
            quant_config=None,
            speculative_config=SimpleNamespace(
                enable_adaptive_verification=enabled,
                draft_model_config=draft_config,
                num_speculative_tokens=NUM_DRAFTS,
                parallel_drafting=False,
            ),
        )

        def build(vllm_config, model_config, prefix):
            for i, layer in enumerate(layers):
                name = f"layers.{i}.attn"
                vllm_config.compilation_config.static_forward_context[name] = layer
            return torch.nn.Module()

        monkeypatch.setattr(base_loader, "initialize_model", build)
        # This is about platforms that replay graphs.
        monkeypatch.setattr(current_platform, "is_cpu", lambda: False)
        model_config = draft_config if is_draft else target_config
        return Loader(LoadConfig()).create_model(vllm_config, model_config)

    return create


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (HOST_LENS, "on device, which the HostLens attention backend does not support"),
        (UNIFORM, "vary up to 4, but Uniform allows none"),
        (SHORT, "vary up to 4, but Short allows at most 3"),
        (NO_GRAPHS, "vary up to 4, but NoGraphs allows none"),
    ],
)
def test_a_layer_that_cannot_is_refused(layer, reason, create):
    with pytest.raises(ValueError, match=reason):
        create([WIDE, layer, ENOUGH])


def test_all_reasons_and_their_layers_are_told(create):
    with pytest.raises(ValueError, match="Adaptive verification") as e:
        create([HOST_LENS, SHORT, WIDE, HOST_LENS])
    assert "HostLens" in str(e.value) and "Short" in str(e.value)
    assert "Layers: 2, the first is layers.0.attn" in str(e.value)
    assert "Layers: 1, the first is layers.1.attn" in str(e.value)


def test_layers_that_can_are_let_through(create):
    assert create([WIDE, ENOUGH, NO_KV_CACHE]) is not None


@pytest.mark.parametrize("kwargs", [{"enabled": False}, {"is_draft": True}])
def test_other_models_are_not_checked(kwargs, create):
    assert create([HOST_LENS, UNIFORM], **kwargs) is not None


def test_runner_checks_its_config_first():
    class Unpickled:
        def _validate_adaptive_verification(self):
            raise ValueError("checked here")

    with pytest.raises(ValueError, match="checked here"):
        GPUModelRunner(Unpickled(), torch.device("cpu"))
