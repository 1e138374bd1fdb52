# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""adaptive_verification_config means what the plugin says that validates it."""

import json
from types import SimpleNamespace

import pytest

from vllm.config import adaptive_verification as config_module
from vllm.config.adaptive_verification import (
    register_adaptive_verification_validator,
    validate_adaptive_verification_config,
)
from vllm.config.speculative import SpeculativeConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.worker.gpu.spec_decode import init_speculator


def validator(block, _config):
    """A block in canonical form has a number."""
    if "number" not in block and block:
        raise ValueError("this block has no number")
    return {"number": int(block.get("number", 7))}


@pytest.fixture(autouse=True)
def no_plugin(monkeypatch):
    monkeypatch.setattr(config_module, "_validator", None)


@pytest.fixture
def plugin(no_plugin):
    register_adaptive_verification_validator(validator)


def make_config(block, enabled=True):
    return SimpleNamespace(
        adaptive_verification_config=block, enable_adaptive_verification=enabled
    )


def validated(block, enabled=True):
    config = make_config(block, enabled)
    validate_adaptive_verification_config(config)
    return config.adaptive_verification_config


def test_without_a_plugin():
    assert validated(None) is None
    with pytest.raises(RuntimeError, match="no plugin that reads it is loaded"):
        validated({})


def test_there_is_one_plugin(plugin):
    register_adaptive_verification_validator(validator)
    with pytest.raises(ValueError, match="registered already"):
        register_adaptive_verification_validator(lambda block, config: block)


@pytest.mark.usefixtures("plugin")
def test_block_is_brought_into_canonical_form():
    canonical = validated({"number": "3"})
    assert canonical == {"number": 3}
    assert validated(canonical) == canonical
    # Ranks with the plugin do not run beside ranks without it.
    assert validated(None) == {"number": 7}
    with pytest.raises(ValueError, match="this block has no number"):
        validated({"nonsense": 1})


@pytest.mark.usefixtures("plugin")
def test_block_needs_adaptive_verification():
    assert validated(None, enabled=False) is None
    with pytest.raises(RuntimeError, match="no effect without"):
        validated({"number": 3}, enabled=False)


@pytest.mark.usefixtures("plugin")
def test_worker_validates_again():
    spec_config = make_config({"nonsense": 1})
    with pytest.raises(ValueError, match="this block has no number"):
        init_speculator(SimpleNamespace(speculative_config=spec_config), None, None)


def test_hash_tells_blocks_apart():
    def hash_of(block):
        config = SpeculativeConfig.__new__(SpeculativeConfig)
        config.method = "draft_model"
        config.draft_model_config = None
        config.enable_adaptive_verification = True
        config.adaptive_verification_config = block
        return config.compute_hash()

    assert hash_of({"a": 1, "b": 2}) == hash_of({"b": 2, "a": 1})
    assert len({hash_of(None), hash_of({"a": 1}), hash_of({"a": 2})}) == 3


@pytest.mark.usefixtures("plugin")
def test_config_of_the_engine_is_validated(tmp_path):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 64,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    args = EngineArgs(
        model=str(tmp_path),
        skip_tokenizer_init=True,
        speculative_config={
            "method": "ngram",
            "num_speculative_tokens": 3,
            "prompt_lookup_max": 3,
            "adaptive_verification_config": {"number": 3},
        },
    )
    with pytest.raises(RuntimeError, match="no effect without"):
        args.create_engine_config()
