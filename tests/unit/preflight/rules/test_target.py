"""Which targets may lend which drafters their hidden states."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.preflight.rules.checkpoints import CONFIGS, write
from vllm_av.preflight.check import Ways, check
from vllm_av.preflight.question import Question
from vllm_av.preflight.reasons import Reason, ReasonCode, Weight

EAGLE3 = {"hidden_size": 4096, "head_dim": 128}
DRAFTERS = {
    "eagle": "llama-3-8b-eagle",
    "eagle3": "llama-3.1-8b-eagle3",
    "dflash": "qwen3-8b-dflash-b16",
    "dspark": "qwen3-8b-dspark-block7",
}


def told(
    folder: Path,
    target: str,
    method: str,
    *flags: str,
    vllm: str = "0.33.0",
    changes: Mapping[str, Any] | None = None,
    draft: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> list[Reason]:
    """The reasons of the code ``AV-CHECK-TARGET``."""
    spec: dict[str, Any] = {
        "method": method,
        "num_speculative_tokens": 3,
        "enable_adaptive_verification": True,
    }
    if method in DRAFTERS:
        spec["model"] = write(folder, name or DRAFTERS[method], **(draft or {}))
    model = write(folder, target, **(changes or {}))
    args = (model, "--speculative-config", json.dumps(spec), *flags)
    answer = check(Question(args, gpu="h100", vllm=vllm, environment={}), Ways.TABLE)
    found = [each for each in answer.reasons if each.code == ReasonCode.TARGET]
    assert all(each.weight is Weight.REFUSAL and each.fix for each in found)
    return found


@pytest.mark.parametrize("method", ["eagle3", "dflash", "dspark"])
@pytest.mark.parametrize("target", ["falcon-7b", "gemma-2-9b", "gpt2", "mixtral-8x7b"])
def test_drafters_that_read_layers_need_a_target_that_lends(
    tmp_path: Path, target: str, method: str
) -> None:
    reasons = told(tmp_path, target, method)
    assert "hands out no hidden states" in reasons[0].found
    assert method in reasons[0].asked


@pytest.mark.parametrize("method", ["eagle3", "dflash", "dspark"])
def test_others_lend(tmp_path: Path, method: str) -> None:
    assert told(tmp_path, "qwen3-8b", method, draft={"hidden_size": 4096}) == []


def test_eagle_reads_the_last_states_alone(tmp_path: Path) -> None:
    draft = {"hidden_size": 3584, "head_dim": 128}
    assert told(tmp_path, "gemma-2-9b", "eagle", draft=draft) == []
    (reason,) = told(tmp_path, "gemma-2-9b", "eagle")
    assert ("4,096" in reason.asked, "3,584" in reason.found) == (True, True)


def test_an_eagle_3_head_may_do_without_since_0_33(tmp_path: Path) -> None:
    draft = {"eagle_config": {"use_aux_hidden_state": False}}
    found = [
        told(tmp_path, "mixtral-8x7b", "eagle3", vllm=vllm, draft=draft)
        for vllm in ("0.32.0", "0.33.0")
    ]
    assert [len(each) for each in found] == [1, 0]


def test_a_target_may_lend_in_one_version_alone(tmp_path: Path) -> None:
    changes = {"architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe"}
    found = [
        told(tmp_path, "mixtral-8x7b", "eagle3", vllm=vllm, changes=changes)
        for vllm in ("0.32.0", "0.33.0")
    ]
    assert [len(each) for each in found] == [1, 0]


def test_transformers_own_code_lends(tmp_path: Path) -> None:
    assert told(tmp_path, "gemma-2-9b", "eagle3", "--model-impl", "vllm")
    flags = ("--model-impl", "transformers")
    assert told(tmp_path, "gemma-2-9b", "eagle3", *flags, draft={"hidden_size": 3584}) == []


@pytest.mark.parametrize("method", ["eagle3", "dflash"])
def test_states_are_as_wide_as_the_drafter_says(tmp_path: Path, method: str) -> None:
    (reason,) = told(tmp_path, "qwen2.5-7b", method)
    assert "4,096" in reason.asked
    assert "3,584" in reason.found
    # The head itself may be of another size than the target.
    assert told(tmp_path, "qwen2.5-7b", method, draft={"target_hidden_size": 3584}) == []


def test_a_drafter_of_speculators_names_it_too(tmp_path: Path) -> None:
    name = "qwen3-8b-speculator-eagle3"
    assert told(tmp_path, "qwen3-8b", "eagle3", name=name) == []
    assert len(told(tmp_path, "qwen2.5-7b", "eagle3", name=name)) == 1
    wide = {"target_hidden_size": 3584}
    assert told(tmp_path, "qwen2.5-7b", "eagle3", name=name, draft=wide) == []


def test_states_of_several_hidden_sizes_are_left_alone(tmp_path: Path) -> None:
    assert len(told(tmp_path, "qwen2.5-7b", "eagle")) == 1
    assert told(tmp_path, "qwen2.5-7b", "eagle", changes={"hc_mult": 4}) == []


def test_some_draft_by_themselves_alone(tmp_path: Path) -> None:
    changes = {"architectures": ["Qwen4ExpForConditionalGeneration"]}
    (reason,) = told(tmp_path, "qwen3-8b", "eagle", changes=changes)
    assert "its own MTP modules" in reason.found
    assert told(tmp_path, "qwen3-8b", "ngram", changes=changes) == []


def test_every_published_drafter_fits_its_target(tmp_path: Path) -> None:
    targets = {"qwen3-8b": "qwen3-8b", "llama-3-8b": "llama-3.1-8b", "llama-3.1": "llama-3.1-8b"}
    methods = ("dflash", "dspark", "eagle3", "eagle")
    seen = 0
    for folder in sorted(CONFIGS.iterdir()):
        method = next((each for each in methods if each in folder.name), None)
        if method is None:
            continue
        target = next(value for key, value in targets.items() if folder.name.startswith(key))
        assert told(tmp_path, target, method, name=folder.name) == []
        seen += 1
    assert seen >= 7
