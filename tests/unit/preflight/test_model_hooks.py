"""What vLLM changes of its config for single models, as the check has it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.preflight.rules.checkpoints import write
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.question import Question, ask

VERSIONS = ("0.32.0", "0.33.0")


def setup(
    folder: Path,
    target: str,
    *flags: str,
    gpu: str,
    vllm: str = "0.33.0",
    spec: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Setup:
    """The setup of an EAGLE head beside ``target``."""
    speculative = {
        "method": "eagle",
        "model": write(folder, "llama-3-8b-eagle"),
        "num_speculative_tokens": 3,
        "enable_adaptive_verification": True,
        **(spec or {}),
    }
    model = write(folder, target, **(changes or {}))
    args = (model, "--speculative-config", json.dumps(speculative), *flags)
    return ask(Question(args, gpu=gpu, vllm=vllm, environment={})).setup


def version_of(made: Setup) -> int | None:
    """Of FlashAttention, for all layers."""
    found: int | None = made.features.get("attention_config", {}).get("flash_attn_version")
    return found


@pytest.mark.parametrize("vllm", VERSIONS)
@pytest.mark.parametrize("gpu", ["h100", "b200"])
def test_gemma_4_takes_one_version_for_both_sizes_of_heads(
    tmp_path: Path, gpu: str, vllm: str
) -> None:
    made = setup(tmp_path, "gemma-4-31b", gpu=gpu, vllm=vllm)
    assert {group.head_size for group in made.target.groups} == {256, 512}
    assert (made.attention_backend, version_of(made)) == (None, 4)


@pytest.mark.parametrize(
    ("flags", "backend", "version"),
    [
        (("--attention-backend", "FLASH_ATTN"), "FLASH_ATTN", 4),
        (("--attention-backend", "TRITON_ATTN"), "TRITON_ATTN", None),
        (("--attention-config.flash_attn_version", "2"), None, 2),
        (("--kv-cache-dtype", "fp8"), None, None),
    ],
)
def test_gemma_4_leaves_to_the_user_what_vllm_leaves(
    tmp_path: Path, flags: tuple[str, ...], backend: str | None, version: int | None
) -> None:
    made = setup(tmp_path, "gemma-4-31b", *flags, gpu="h100")
    assert (made.attention_backend, version_of(made)) == (backend, version)


@pytest.mark.parametrize("vllm", VERSIONS)
@pytest.mark.parametrize("gpu", ["a100", "rtx5090", "mi300x", "cpu"])
def test_gemma_4_runs_on_triton_where_that_version_is_not(
    tmp_path: Path, gpu: str, vllm: str
) -> None:
    made = setup(tmp_path, "gemma-4-31b", gpu=gpu, vllm=vllm)
    assert (made.attention_backend, version_of(made)) == ("TRITON_ATTN", None)
    assert made.where["attention_backend"] == "vLLM's own choice for Gemma 4"
    named = setup(tmp_path, "gemma-4-31b", "--attention-backend", "FLASH_ATTN", gpu=gpu, vllm=vllm)
    assert (named.attention_backend, version_of(named)) == ("FLASH_ATTN", None)


def test_gemma_4_is_left_to_the_platform_on_xpu_since_0_33(tmp_path: Path) -> None:
    found = [setup(tmp_path, "gemma-4-31b", gpu="xpu", vllm=each) for each in VERSIONS]
    assert [made.attention_backend for made in found] == ["TRITON_ATTN", None]


def test_gemma_4_with_heads_of_one_size_is_like_any_model(tmp_path: Path) -> None:
    config = json.loads(Path(write(tmp_path, "gemma-4-31b"), "config.json").read_text())
    text = config["text_config"] | {"global_head_dim": 256}
    made = setup(tmp_path, "gemma-4-31b", gpu="a100", changes={"text_config": text})
    assert (made.attention_backend, version_of(made)) == (None, None)


def test_gpt_oss_captures_larger_batches(tmp_path: Path) -> None:
    def largest(*flags: str) -> int:
        return setup(tmp_path, "gpt-oss-120b", *flags, gpu="h100").max_capture_size

    assert largest() == 1024
    assert largest("--max-cudagraph-capture-size", "256") == 256
    assert largest("--cudagraph-capture-sizes", "1", "64") == 64
    assert setup(tmp_path, "llama-3.1-8b", gpu="h100").max_capture_size == 512


def test_glm_5_has_an_fp8_cache_on_blackwell(tmp_path: Path) -> None:
    made = setup(tmp_path, "glm-5", gpu="b200")
    assert (made.kv_cache_dtype, made.speculative["kv_cache_dtype"]) == ("fp8_e4m3", "auto")
    own = {"method": "mtp", "model": None}
    shared = setup(tmp_path, "glm-5", gpu="b200", spec=own)
    assert (shared.kv_cache_dtype, "kv_cache_dtype" in shared.speculative) == ("fp8_e4m3", False)
    assert setup(tmp_path, "glm-5", gpu="h100").kv_cache_dtype == "auto"
    asked = setup(tmp_path, "glm-5", "--kv-cache-dtype", "bfloat16", gpu="b200")
    assert asked.kv_cache_dtype == "bfloat16"


def test_glm_5_3_too_where_it_has_an_indexer(tmp_path: Path) -> None:
    new = {"architectures": ["Glm5NextForCausalLM"]}
    made = setup(tmp_path, "glm-5", gpu="b200", changes=new)
    assert made.kv_cache_dtype == "fp8"
    dense = setup(tmp_path, "glm-5", gpu="b200", changes={**new, "index_topk": None})
    assert dense.kv_cache_dtype == "auto"
    assert setup(tmp_path, "glm-5", gpu="b200", vllm="0.32.0", changes=new).kv_cache_dtype == "auto"


def test_deepseek_v3_2_takes_bfloat16_for_auto(tmp_path: Path) -> None:
    made = setup(tmp_path, "deepseek-v3.2", "--kv-cache-dtype", "bfloat16", gpu="h100")
    assert made.kv_cache_dtype == "auto"


def test_a_model_may_have_graphs_of_its_own(tmp_path: Path) -> None:
    def modes(*flags: str) -> tuple[str, int]:
        changes = {"architectures": ["LongcatFlashNgramForCausalLM"]}
        made = setup(tmp_path, "longcat-flash", *flags, gpu="h100", changes=changes)
        return made.cudagraph_mode, made.features["compilation_mode"]

    assert modes() == ("FULL", 0)
    assert modes("-O1") == ("FULL", 0)
    assert modes("-cc.cudagraph_mode=PIECEWISE", "-cc.mode=3") == ("PIECEWISE", 3)
