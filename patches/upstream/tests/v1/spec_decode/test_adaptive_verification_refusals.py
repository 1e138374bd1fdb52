# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""All that stands against adaptive verification is told when the config is made."""

import json

import pytest

from vllm.config import adaptive_verification_check as check_module
from vllm.engine.arg_utils import EngineArgs

LOCAL_ARGMAX = {"use_local_argmax_reduction": True}
NGRAM = {"method": "ngram", "prompt_lookup_max": 3}
LORA = {"enable_lora": True}
MASK = {"return_sampling_mask": True, "logprobs_mode": "processed_logprobs"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
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
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


@pytest.fixture
def found(monkeypatch):
    """The kinds of blockers that the next configs have, which are let through."""
    kinds: set[str] = set()

    def checker(_config, blockers, _layers):
        kinds.clear()
        # The CPU platform has no graphs at all.
        kinds.update(
            blocker.kind for blocker in blockers if blocker.kind != "cudagraphs"
        )
        return []

    monkeypatch.setattr(check_module, "_checker", checker)
    return kinds


def make_config(model, spec_changes=None, **engine_changes):
    spec = {
        "method": "draft_model",
        "model": model,
        "num_speculative_tokens": 3,
        "enable_adaptive_verification": True,
    } | (spec_changes or {})
    if spec["method"] == "ngram":
        del spec["model"]
    return EngineArgs(
        model=model,
        skip_tokenizer_init=True,
        max_model_len=48,
        speculative_config=spec,
        **engine_changes,
    ).create_engine_config()


@pytest.mark.parametrize(
    ("spec_changes", "engine_changes", "kinds"),
    [
        ({}, {}, set()),
        (LOCAL_ARGMAX, {}, {"local_argmax"}),
        (NGRAM, {}, {"method"}),
        ({}, LORA, {"lora"}),
        ({}, MASK, {"sampling_mask"}),
        (LOCAL_ARGMAX, LORA | MASK, {"local_argmax", "lora", "sampling_mask"}),
    ],
)
def test_each_reason_is_found(spec_changes, engine_changes, kinds, model, found):
    make_config(model, spec_changes, **engine_changes)
    assert found == kinds


def test_reasons_are_told_together(model, monkeypatch):
    monkeypatch.setattr(check_module, "_checker", None)
    with pytest.raises(ValueError, match="cannot run with this configuration") as e:
        make_config(model, LOCAL_ARGMAX, **LORA, **MASK)
    for reason in (
        "which use_local_argmax_reduction never materializes",
        "not currently compatible with LoRA",
        "requires fixed verification boundaries",
    ):
        assert reason in str(e.value)


def test_v1_runner_is_one_reason_among_others(model, found, monkeypatch):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    # What V1 itself refuses is refused afterwards, for who asks for it all the same.
    with pytest.raises(ValueError, match="Model Runner V1"):
        make_config(model, **LORA)
    assert found == {"runner", "lora"}


def test_switched_off_in_time_for_the_v1_runner(model, monkeypatch):
    def switch_off(config, _blockers, _layers):
        config.speculative_config.enable_adaptive_verification = False
        return []

    monkeypatch.setattr(check_module, "_checker", switch_off)
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    config = make_config(model, **LORA)
    assert not config.use_v2_model_runner
    assert not config.speculative_config.enable_adaptive_verification
