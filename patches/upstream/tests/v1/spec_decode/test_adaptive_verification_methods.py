# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Methods that estimate no acceptance are refused adaptive verification."""

import json
from types import SimpleNamespace

import pytest

from vllm.config.speculative import XPRESS_ARCHITECTURES, SpeculativeConfig
from vllm.engine.arg_utils import EngineArgs

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}


def test_method_is_refused_when_the_config_is_made(tmp_path):
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

    def make_config(**changes):
        args = EngineArgs(
            model=str(tmp_path),
            skip_tokenizer_init=True,
            speculative_config=NGRAM | changes,
        )
        return args.create_engine_config()

    assert make_config().speculative_config.method == "ngram"
    with pytest.raises(ValueError, match="which method='ngram' does not make"):
        make_config(enable_adaptive_verification=True)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("draft_model", True),
        ("eagle", True),
        ("eagle3", True),
        ("mtp", True),
        ("dflash", True),
        ("dspark", True),
        ("custom_class", False),
        ("extract_hidden_states", False),
        ("ngram", False),
        ("suffix", False),
    ],
)
def test_which_methods_estimate(method, expected):
    # Unvalidated: a draft model's config is not at hand.
    config = SpeculativeConfig.__new__(SpeculativeConfig)
    config.method = method
    config.draft_model_config = SimpleNamespace(architectures=["SomeDraftModel"])
    assert config.estimates_acceptance() is expected


def test_xpress_does_not():
    config = SpeculativeConfig.__new__(SpeculativeConfig)
    config.method = "dflash"
    config.draft_model_config = SimpleNamespace(
        architectures=sorted(XPRESS_ARCHITECTURES)[:1]
    )
    assert not config.estimates_acceptance()
