"""Whatever lies where a model's files should be: one line each, and no traceback."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_av.errors import CheckError, Code
from vllm_av.preflight.model import read_draft, read_target

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


def model(folder: Path, **more: Any) -> Path:
    """A folder with a small model's config."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA | more))
    return folder


def one_line(error: CheckError, code: Code) -> str:
    """The line, which is one, short, and of that code."""
    line = str(error)
    assert error.code is code
    assert line.startswith(f"[{code}]")
    assert "\n" not in line
    assert len(line) < 700
    return line


def fifo(file: Path) -> None:
    os.mkfifo(file)


def zero(file: Path) -> None:
    file.symlink_to("/dev/zero")


def folder(file: Path) -> None:
    file.mkdir()


def loop(file: Path) -> None:
    file.symlink_to(file)


def holding(data: bytes) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        file.write_bytes(data)

    return write


FILES = [
    (fifo, "no regular file"),
    (zero, "no regular file"),
    (folder, "no regular file"),
    (loop, "Too many levels"),
    (holding(b""), "no JSON: Expecting value at line 1"),
    (holding(b'{"architectures": ["Llama'), "no JSON"),
    (holding(b"[1, 2]"), "no object"),
    (holding(b"7"), "no object"),
    (holding(b'"config"'), "no object"),
    (holding(b"null"), "no object"),
    (holding(b'\xff\xfe{"a": 1}'), "not UTF-8"),
    (holding(b'\xef\xbb\xbf{"a": 1}'), "BOM"),
    (holding(b'{"a": ' + b"[" * 200_000), "nested too deeply"),
    (holding(b'{"a": ' + b"1" * 5000 + b"}"), "too many digits"),
    (holding(b" " * (9 << 20)), "more than 8 MiB"),
]


@pytest.mark.parametrize(("make", "reason"), FILES)
def test_a_broken_config(make: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    make(tmp_path / "config.json")
    with pytest.raises(CheckError) as caught:
        read_target(str(tmp_path))
    assert reason in one_line(caught.value, Code.QUESTION_MODEL)
    target = read_target(str(model(tmp_path / "target")))
    with pytest.raises(CheckError) as caught:
        read_draft({"model": str(tmp_path), "num_speculative_tokens": 3}, target)
    assert reason in one_line(caught.value, Code.QUESTION_DRAFT)


@pytest.mark.parametrize(
    "name",
    ["", "no/such-model", "/no/such/folder", "a\0b", "x" * 5000, "~nobody/x", "../..", "s3://a/b"],
)
def test_no_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckError) as caught:
        read_target(name)
    line = one_line(caught.value, Code.QUESTION_MODEL)
    assert "there is no folder" in line or "has no config.json" in line


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    file = model(tmp_path / "model") / "config.json"
    with pytest.raises(CheckError) as caught:
        read_target(str(file))
    assert "is no folder" in one_line(caught.value, Code.QUESTION_MODEL)


@pytest.mark.parametrize("other", [False, True])
def test_a_folder_without_a_config(other: bool, tmp_path: Path) -> None:
    if other:
        (tmp_path / "params.json").write_text("{}")
    with pytest.raises(CheckError) as caught:
        read_target(str(tmp_path))
    line = one_line(caught.value, Code.QUESTION_MODEL)
    assert "has no config.json" in line
    assert ("params.json" in line) is other


NUMBERS = [
    ({"num_hidden_layers": 10**9}, "num_hidden_layers in", "1000000000"),
    ({"num_hidden_layers": 0}, "num_hidden_layers in", "is 0"),
    ({"num_hidden_layers": "32"}, "num_hidden_layers in", '"32"'),
    ({"num_hidden_layers": True}, "num_hidden_layers in", "true"),
    ({"num_hidden_layers": [1, 2]}, "num_hidden_layers in", "[1, 2]"),
    ({"num_attention_heads": 0}, "num_attention_heads in", "is 0"),
    ({"num_attention_heads": -4}, "num_attention_heads in", "is -4"),
    ({"num_attention_heads": 4.5}, "num_attention_heads in", "4.5"),
    ({"num_attention_heads": float("nan")}, "num_attention_heads in", "NaN"),
    ({"num_attention_heads": float("inf")}, "num_attention_heads in", "Infinity"),
    ({"num_key_value_heads": 10**12}, "num_key_value_heads in", "1000000000000"),
    ({"hidden_size": 2}, "hidden_size in", "4 heads"),
    ({"hidden_size": {}}, "hidden_size in", "{}"),
    ({"head_dim": 10**8}, "head_dim in", "100000000"),
    ({"head_dim": "wide"}, "head_dim in", '"wide"'),
    ({"vocab_size": 0}, "vocab_size in", "is 0"),
    ({"vocab_size": 10**15}, "vocab_size in", "1000000000000000"),
    ({"sliding_window": -1}, "sliding_window in", "is -1"),
    ({"num_experts": 10**9}, "num_experts in", "1000000000"),
    ({"num_experts": [{}]}, "num_experts in", "{}"),
    ({"layer_types": "full_attention"}, "layer_types in", "a list is allowed"),
    ({"layer_types": ["full_attention"]}, "layer_types in", "2 layers"),
    ({"text_config": [1]}, "text_config in", "an object is allowed"),
    ({"text_config": {"num_hidden_layers": 0}}, "text_config.num_hidden_layers in", "is 0"),
    ({"architectures": "LlamaForCausalLM"}, "architectures in", "a list of strings"),
    ({"architectures": [1]}, "architectures in", "a list of strings"),
    ({"architectures": []}, "architectures in", "not there"),
    ({"architectures": None}, "architectures in", "not there"),
    ({"model_type": 3}, "model_type in", "a string is allowed"),
    ({"torch_dtype": "int3"}, "torch_dtype in", '"int3"'),
    ({"dtype": {"a": 1}}, "dtype in", "bfloat16"),
]


@pytest.mark.parametrize(("more", "key", "said"), NUMBERS)
def test_a_value_that_no_model_has(
    more: dict[str, Any], key: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckError) as caught:
        read_target(str(model(tmp_path, **more)))
    line = one_line(caught.value, Code.QUESTION_MODEL)
    assert key in line
    assert said in line


UNHASHABLE: list[dict[str, Any]] = [
    {"architectures": ["KimiLinearForCausalLM"], "kv_lora_rank": 8, "linear_attn_config": []},
    {
        "architectures": ["KimiLinearForCausalLM"],
        "kv_lora_rank": 8,
        "linear_attn_config": {"kda_layers": 5},
    },
    {"architectures": ["NemotronHForCausalLM"], "layers_block_type": 5},
    {"architectures": ["JambaForCausalLM"], "attn_layer_period": 0, "attn_layer_offset": 0},
    {"architectures": ["Llama4ForCausalLM"], "no_rope_layers": 5},
    {"architectures": ["LagunaForCausalLM"], "num_attention_heads_per_layer": ["8", {}]},
    {"architectures": ["DeciLMForCausalLM"], "block_configs": [[]]},
    {"architectures": ["DomynEdgeForCausalLM"], "window_sizes": [["a"], ["b"]]},
    {"architectures": ["DeepseekV4ForCausalLM"], "head_dim": 8, "compress_ratios": [{}, {}]},
    {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": "x", "qk_rope_head_dim": 8},
]


@pytest.mark.parametrize("more", UNHASHABLE)
def test_a_structure_that_no_model_has(more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CheckError) as caught:
        read_target(str(model(tmp_path, **more)))
    one_line(caught.value, Code.QUESTION_MODEL)


HARMLESS: list[dict[str, Any]] = [
    {"layer_types": [{}, []]},
    {"architectures": ["LlavaForConditionalGeneration"], "text_config": {"model_type": "opt"}},
    {"architectures": ["DeepseekV4ForCausalLM"], "head_dim": 8, "layer_types": [{}, []]},
    {"architectures": ["KimiLinearForCausalLM"], "kv_lora_rank": 8, "linear_attn_config": {}},
    {"architectures": ["Step5ForCausalLM"], "layer_types": [{}, []]},
    {"architectures": ["MiniMaxM3SparseForCausalLM"], "sparse_attention_config": {}},
    {"architectures": ["Zamba2ForCausalLM"], "layers_block_type": [{}, []]},
    {"architectures": ["Lfm2ForCausalLM"], "full_attn_idxs": ["a", {}]},
]


@pytest.mark.parametrize("more", HARMLESS)
def test_what_vllm_would_take_for_something_else(more: dict[str, Any], tmp_path: Path) -> None:
    assert sum(group.count for group in read_target(str(model(tmp_path, **more))).groups) >= 2


def test_an_architecture_that_is_not_known_is_no_mistake(tmp_path: Path) -> None:
    config = {"architectures": ["NobodysForCausalLM"], "model_type": "nobodys"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    facts = read_target(str(tmp_path))
    assert (facts.groups, facts.architecture) == ((), "NobodysForCausalLM")
    assert (facts.vocab_size, facts.experts) == (0, 0)


def test_sections_within_sections_end_somewhere(tmp_path: Path) -> None:
    config: dict[str, Any] = {}
    for _ in range(900):
        config = {"text_config": config}
    with pytest.raises(CheckError):
        read_target(str(model(tmp_path, text_config=config)))


COUNTS = [0, -1, 10**9, 1025, "many", [3], {}, True, 2.5, float("nan"), float("inf")]


@pytest.mark.parametrize("count", COUNTS)
def test_a_number_of_drafts_that_there_is_not(count: object, tmp_path: Path) -> None:
    target = read_target(str(model(tmp_path)))
    with pytest.raises(CheckError) as caught:
        read_draft({"model": str(tmp_path), "num_speculative_tokens": count}, target)
    line = one_line(caught.value, Code.QUESTION_SPEC)
    assert "num_speculative_tokens is" in line
    assert "from 1 on" in line or "the limit of this package" in line


SPECS = [
    ({}, "neither a method nor a model"),
    ({"method": "eagle3", "num_speculative_tokens": 3}, "without a model"),
    ({"method": "eagel", "num_speculative_tokens": 3}, "no method"),
    ({"method": 3}, "a string is allowed"),
    ({"model": ["x"]}, "a string is allowed"),
    ({"method": "ngram"}, "has no num_speculative_tokens"),
    ({"method": "mtp", "num_speculative_tokens": 3}, "no MTP modules"),
]


@pytest.mark.parametrize(("spec", "said"), SPECS)
def test_a_config_that_vllm_would_not_take(spec: dict[str, Any], said: str, tmp_path: Path) -> None:
    target = read_target(str(model(tmp_path)))
    with pytest.raises(CheckError) as caught:
        read_draft(spec, target)
    assert said in one_line(caught.value, Code.QUESTION_SPEC)


@pytest.mark.parametrize("method", ["eagle", "draft_model"])
@pytest.mark.parametrize("config", [{}, {"architectures": ["LlamaForCausalLM"]}])
def test_a_config_that_does_not_say_its_type(
    config: dict[str, object], method: str, tmp_path: Path
) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "config.json").write_text(json.dumps(config))
    target = read_target(str(model(tmp_path / "target")))
    with pytest.raises(CheckError) as caught:
        read_draft({"method": method, "model": str(draft), "num_speculative_tokens": 3}, target)
    assert "model_type" in one_line(caught.value, Code.QUESTION_DRAFT)
    with pytest.raises(CheckError) as caught:
        read_target(str(draft))
    assert "model_type" in one_line(caught.value, Code.QUESTION_MODEL)


def test_a_drafter_of_no_class(tmp_path: Path) -> None:
    target = read_target(str(model(tmp_path / "target")))
    draft = tmp_path / "draft"
    draft.mkdir()
    whole = json.loads((tmp_path / "target/config.json").read_text())
    (draft / "config.json").write_text(json.dumps({**whole, "architectures": []}))
    spec = {"method": "eagle", "model": str(draft), "num_speculative_tokens": 3}
    with pytest.raises(CheckError) as caught:
        read_draft(spec, target)
    assert "architectures" in one_line(caught.value, Code.QUESTION_DRAFT)
    assert read_draft({**spec, "method": "draft_model"}, target).method == "draft_model"


def test_a_number_that_the_overrides_say_is_not_the_files(tmp_path: Path) -> None:
    with pytest.raises(CheckError) as caught:
        read_target(str(model(tmp_path / "target")), overrides={"num_hidden_layers": 0})
    line = one_line(caught.value, Code.QUESTION_MODEL)
    assert line.endswith("correct --hf-overrides, or the file")


def test_a_number_in_the_speculative_config_is_in_no_file(tmp_path: Path) -> None:
    target = read_target(str(model(tmp_path / "target")))
    with pytest.raises(CheckError) as caught:
        read_draft({"method": "suffix", "suffix_decoding_max_tree_depth": 0}, target)
    assert one_line(caught.value, Code.QUESTION_SPEC).endswith("correct it")
