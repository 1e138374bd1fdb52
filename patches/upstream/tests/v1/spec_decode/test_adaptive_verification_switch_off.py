# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A plugin may switch adaptive verification off when it sees the target's layers."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

from vllm.config import adaptive_verification_check as check_module
from vllm.config.load import LoadConfig
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader import base_loader
from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator


class Layer(AttentionLayerBase):
    def get_attn_backend(self):
        raise AssertionError("a layer without KV cache has none to ask")

    def get_kv_cache_spec(self, vllm_config):
        return None


class Loader(base_loader.BaseModelLoader):
    def download_model(self, model_config):
        pass

    def load_weights(self, model, model_config):
        pass


@pytest.fixture
def vllm_config():
    return SimpleNamespace(
        compilation_config=SimpleNamespace(
            static_forward_context={}, static_all_moe_layers=[]
        ),
        model_config=SimpleNamespace(),
        quant_config=None,
        speculative_config=SimpleNamespace(
            enable_adaptive_verification=True,
            draft_model_config=None,
            num_speculative_tokens=3,
            parallel_drafting=False,
        ),
    )


@pytest.fixture
def built(monkeypatch):
    """Weak references to the models that are built, each with one layer."""
    models: list[weakref.ref] = []

    def build(vllm_config, model_config, prefix):
        # The model before is gone when this one is built.
        assert all(model() is None for model in models)
        compilation_config = vllm_config.compilation_config
        assert not compilation_config.static_forward_context
        assert not compilation_config.static_all_moe_layers
        model = torch.nn.Module()
        model.adaptive = vllm_config.speculative_config.enable_adaptive_verification
        model.layer = Layer()
        # As experts are, through which a layer keeps its model.
        model.layer.model = model
        models.append(weakref.ref(model))
        compilation_config.static_forward_context["attn"] = model.layer
        compilation_config.static_all_moe_layers.append(model.layer)
        return model

    monkeypatch.setattr(base_loader, "initialize_model", build)
    return models


def switch_off(vllm_config, blockers, layers):
    assert list(layers) == ["attn"]
    vllm_config.speculative_config.enable_adaptive_verification = False
    return []


@pytest.mark.parametrize("switched_off", [True, False])
def test_target_is_built_again_without_it(
    switched_off, vllm_config, built, monkeypatch
):
    checker = switch_off if switched_off else None
    monkeypatch.setattr(check_module, "_checker", checker)
    loader = Loader(LoadConfig())
    model = loader.create_model(vllm_config, vllm_config.model_config)
    assert len(built) == 1 + switched_off
    assert model.adaptive is not switched_off
    layers = vllm_config.compilation_config.static_forward_context
    assert layers == {"attn": model.layer}
    gc.collect()
    assert [ref() for ref in built] == [None] * switched_off + [model]


def test_speculator_reads_the_config_when_it_loads(vllm_config):
    class Loading(Exception):
        pass

    class Speculator(DraftModelSpeculator):
        def __init__(self):
            self.vllm_config = vllm_config
            self.speculative_config = vllm_config.speculative_config
            self.enable_adaptive_verification = True

        def load_draft_model(self, target_model, target_attn_layer_names):
            raise Loading

    Speculator.__abstractmethods__ = frozenset()
    speculator = Speculator()
    vllm_config.speculative_config.enable_adaptive_verification = False
    with pytest.raises(Loading):
        speculator.load_model(torch.nn.Module())
    assert not speculator.enable_adaptive_verification
