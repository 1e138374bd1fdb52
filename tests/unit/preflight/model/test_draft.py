"""Drafters: heads, vocabularies, methods that a path or a config gives away."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from vllm_av.errors import CheckError, Code
from vllm_av.preflight.facts import LayerKind, ModelFacts
from vllm_av.preflight.model import draft_from_config, read_draft, read_target

CONFIGS = Path(__file__).parents[3] / "configs"
K = {"num_speculative_tokens": 3}


@pytest.fixture
def qwen() -> ModelFacts:
    return read_target(str(CONFIGS / "qwen3-8b"))


def copied(name: str, folder: Path, tensors: list[str] | None = None, **more: Any) -> str:
    """A drafter's config with other values, and an index of tensors beside it."""
    shutil.copytree(CONFIGS / name, folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | more))
    if tensors is not None:
        index = {"weight_map": dict.fromkeys(tensors, "model.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return str(folder)


DSPARK = "qwen3-8b-dspark-block7"
HEAD = ["layers.0.w", "confidence_head.proj.weight"]


@pytest.mark.parametrize(
    ("tensors", "more", "has_head", "type_name"),
    [
        (None, {}, None, "dspark"),
        (HEAD, {}, True, "dspark"),
        (["layers.0.w"], {}, False, "dspark-headless"),
        (HEAD, {"enable_confidence_head": False}, False, "dspark-headless"),
        (None, {"enable_confidence_head": False}, False, "dspark-headless"),
        (HEAD, {"enable_confidence_head": None}, False, "dspark-headless"),
    ],
)
def test_the_confidence_head(
    tensors: list[str] | None,
    more: dict[str, Any],
    has_head: bool | None,
    type_name: str,
    qwen: ModelFacts,
    tmp_path: Path,
) -> None:
    name = copied(DSPARK, tmp_path / "drafter", tensors, **more)
    facts = read_draft({"model": name, "method": "dspark"}, qwen)
    assert (facts.has_head, facts.type_name) == (has_head, type_name)
    assert facts.num_speculative_tokens == 7  # its block's


@pytest.mark.parametrize(
    ("tensors", "more", "has_head"),
    [
        (["mtp.0.confidence_head.proj.weight"], {}, True),
        (["mtp.0.confidence_head.proj.weight"], {"enable_confidence_head": False}, False),
        (["layers.0.w"], {}, False),
        (None, {}, None),
    ],
)
def test_deepseek_has_its_head_in_the_target_unless_it_says_not(
    tensors: list[str] | None, more: dict[str, Any], has_head: bool | None, tmp_path: Path
) -> None:
    name = copied("deepseek-v3", tmp_path / "target", tensors, model_type="deepseek_v4", **more)
    target = read_target(name)
    facts = read_draft({"method": "dspark", "num_speculative_tokens": 5}, target)
    assert (facts.has_head, facts.architecture) == (has_head, "DSparkDraftModel")
    assert facts.source == "the target's own"


@pytest.mark.parametrize(
    ("tensors", "more", "own"),
    [
        (["lm_head.weight", "d2t"], {}, True),
        (["layers.0.w", "d2t"], {}, False),
        (["layers.0.w", "d2t"], {"has_own_lm_head": True}, True),
        (None, {}, None),
    ],
)
def test_the_output_head(
    tensors: list[str] | None, more: dict[str, Any], own: bool | None, tmp_path: Path
) -> None:
    target = read_target(str(CONFIGS / "llama-3.1-8b"))
    name = copied("llama-3.1-8b-eagle3", tmp_path / "drafter", tensors, **more)
    facts = read_draft({"model": name, "method": "eagle3", **K}, target)
    assert facts.output_head is own
    assert (facts.draft_vocab_size, facts.vocab_size) == (32_000, 128_256)


def test_a_name_in_the_path_outweighs_what_was_asked_for(qwen: ModelFacts, tmp_path: Path) -> None:
    """vLLM looks for the names of methods in the path before it looks into the config."""
    for part, method in (("Eagle-x", "eagle"), ("EAGLE3-x", "eagle3"), ("DSpark-x", "dspark")):
        name = copied("qwen3-0.6b", tmp_path / part)
        assert read_draft({"model": name, "method": "draft_model", **K}, qwen).method == method


@pytest.mark.parametrize(
    ("spec", "method", "type_name"),
    [
        ({"method": "ngram"}, "ngram", "ngram"),
        ({"model": "[ngram]"}, "ngram", "ngram"),
        ({"method": "ngram_gpu"}, "ngram_gpu", "ngram"),
        ({"method": "suffix"}, "suffix", "suffix"),
        ({"model": "package.Proposer"}, "custom_class", "custom-class"),
        ({"method": "extract_hidden_states"}, "extract_hidden_states", "extract-hidden-states"),
    ],
)
def test_methods_without_a_model(
    spec: dict[str, Any], method: str, type_name: str, qwen: ModelFacts
) -> None:
    facts = read_draft(spec | K, qwen)
    assert (facts.method, facts.type_name) == (method, type_name)
    assert (facts.has_head, facts.architecture) == (False, None)


def test_suffix_decoding_has_a_number_of_its_own(qwen: ModelFacts) -> None:
    assert read_draft({"method": "suffix"}, qwen).num_speculative_tokens == 24


def test_many_modules() -> None:
    """Three modules draft by themselves where K reaches the second."""
    target = read_target(str(CONFIGS / "step-3.5-flash"))
    for count, type_name in ((1, "mtp"), (3, "multi-module-mtp")):
        facts = read_draft({"method": "mtp", "num_speculative_tokens": count}, target)
        assert (facts.type_name, facts.architecture) == (type_name, "Step3p5MTP")


def test_a_number_that_is_no_multiple_of_the_modules() -> None:
    target = read_target(str(CONFIGS / "step-3.5-flash"))
    with pytest.raises(CheckError, match="predicts 3 at once") as caught:
        read_draft({"method": "mtp", "num_speculative_tokens": 7}, target)
    assert caught.value.code is Code.QUESTION_SPEC
    assert caught.value.fix == 'write "num_speculative_tokens": 6'


def test_another_vocabulary(qwen: ModelFacts) -> None:
    other = {"model": str(CONFIGS / "llama-3.1-8b"), "method": "draft_model", **K}
    with pytest.raises(CheckError, match="own vocabulary") as caught:
        read_draft(other, qwen)
    assert caught.value.code is Code.QUESTION_DRAFT
    assert caught.value.given.startswith("vocab_size in ")
    assert "heterogeneous" not in str(caught.value)  # only the V1 model runner has that
    facts = read_draft({**other, "use_heterogeneous_vocab": True}, qwen)
    assert (facts.draft_vocab_size, facts.vocab_size) == (128_256, 151_936)


def test_the_key_of_another_vocabulary_is_named(qwen: ModelFacts, tmp_path: Path) -> None:
    name = copied("qwen3-0.6b", tmp_path / "drafter", draft_vocab_size=32_000)
    with pytest.raises(CheckError, match=r"^.AV-QUESTION-DRAFT. draft_vocab_size in .* is 32000"):
        read_draft({"model": name, **K}, qwen)


@pytest.mark.parametrize(
    ("architecture", "method"),
    [
        ("LlamaForCausalLMEagle3", "eagle3"),
        ("Eagle3Qwen3ForCausalLM", "eagle3"),
        ("EagleLlamaForCausalLM", "eagle"),
        ("DFlashDraftModel", "dflash"),
        ("K3DSparkModel", "dspark"),
        ("LlamaForCausalLM", None),
        ("Eagle2_5_VLForConditionalGeneration", None),
    ],
)
def test_a_drafter_without_its_method_is_no_draft_model(
    architecture: str, method: str | None, qwen: ModelFacts, tmp_path: Path
) -> None:
    name = copied("qwen3-0.6b", tmp_path / "drafter", architectures=[architecture])
    if method is None:
        assert read_draft({"model": name, **K}, qwen).method == "draft_model"
        return
    with pytest.raises(CheckError, match=f"names .*{architecture}") as caught:
        read_draft({"model": name, **K}, qwen)
    assert caught.value.code is Code.QUESTION_DRAFT
    assert caught.value.fix == f'add "method": "{method}"'


def test_parallel_drafting(qwen: ModelFacts) -> None:
    spec = {"model": str(CONFIGS / "qwen3-0.6b"), "parallel_drafting": True, **K}
    assert read_draft(spec, qwen).type_name == "parallel"


@pytest.mark.parametrize(
    ("method", "before", "after"),
    [
        ("eagle", "LlamaForCausalLM", "EagleLlamaForCausalLM"),
        ("eagle3", "LlamaForCausalLM", "Eagle3LlamaForCausalLM"),
        ("eagle3", "LlamaForCausalLMEagle3", "LlamaForCausalLMEagle3"),
        ("dflash", "Qwen3XPressModel", "DFlashQwen3XPressModel"),
        ("dflash", "LiLiCorrDraftModel", "LiLiCorrDraftModel"),
        ("dspark", "K3DSparkModel", "K3DSparkModel"),
    ],
)
def test_a_config_that_vllm_has_looked_at_stays_as_it_is(
    method: str, before: str, after: str, qwen: ModelFacts
) -> None:
    """What an engine's config holds is what the file becomes."""
    for architecture in (before, after):
        facts = draft_from_config(
            {"architectures": [architecture], "model_type": "qwen3", "vocab_size": 151_936},
            method=method,
            num_speculative_tokens=3,
            target=qwen,
        )
        assert facts.architecture == after
        assert (facts.has_head, facts.output_head) == (False, None)


def test_deepseek_v4_1_drafts_by_dspark_alone(tmp_path: Path) -> None:
    target = read_target(copied("deepseek-v3", tmp_path / "target", model_type="deepseek_v41"))
    with pytest.raises(CheckError, match="draft by dspark") as caught:
        read_draft({"method": "mtp", **K}, target)
    assert caught.value.code is Code.QUESTION_SPEC


@pytest.mark.parametrize(
    ("target", "spec", "layers"),
    [
        ("glm-4.5-air", {"method": "mtp"}, [(LayerKind.FULL, 1, 128, 96, 8)]),
        ("qwen3-next-80b-a3b", {"method": "mtp"}, [(LayerKind.FULL, 1, 256, 16, 2)]),
        ("deepseek-v3", {"method": "mtp"}, [(LayerKind.MLA, 1, 576, 128, 1)]),
        (
            "glm-5",
            {"method": "mtp"},
            [(LayerKind.MLA_SPARSE, 1, 576, 64, 1), (LayerKind.INDEXER, 1, 128, 32, 1)],
        ),
        (
            "llama-3.1-8b",
            {"method": "eagle3", "model": "llama-3.1-8b-eagle3"},
            [(LayerKind.FULL, 1, 128, 32, 8)],
        ),
        (
            "qwen3-8b",
            {"method": "eagle3", "model": "qwen3-8b-speculator-eagle3"},
            [(LayerKind.FULL, 1, 128, 32, 8)],
        ),
        ("qwen3-8b", {"model": "qwen3-0.6b"}, [(LayerKind.FULL, 28, 128, 16, 8)]),
        # Whole blocks, or not known.
        ("qwen3-8b", {"method": "dflash", "model": "qwen3-8b-dflash-b16"}, []),
        ("qwen3-8b", {"method": "dspark", "model": "qwen3-8b-dspark-block7"}, []),
        ("mimo-v2-flash", {"method": "mtp"}, []),
    ],
)
def test_layers_that_see_the_trimmed_batch(
    target: str, spec: dict[str, Any], layers: list[tuple[Any, ...]]
) -> None:
    if "model" in spec:
        spec = {**spec, "model": str(CONFIGS / spec["model"])}
    facts = read_draft(spec | K, read_target(str(CONFIGS / target)))
    assert [
        (group.kind, group.count, group.head_size, group.num_heads, group.num_kv_heads)
        for group in facts.groups
    ] == layers
