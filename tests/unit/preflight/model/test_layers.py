"""Layers that no machine here can build: what the published configs say, and vLLM's model code.

What vLLM can build on the CPU is held against it in ``tests/contract/test_models.py``.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from vllm_av.errors import CheckError, Code
from vllm_av.preflight.backends.rows import rows
from vllm_av.preflight.facts import LayerGroup, ModelFacts
from vllm_av.preflight.facts import LayerKind as Kind
from vllm_av.preflight.model import (
    attention,
    hybrid,
    latent,
    own,
    read_target,
    target_from_config,
)

CONFIGS = Path(__file__).parents[3] / "configs"


def facts(name: str, **more: Any) -> ModelFacts:
    """Of a config in ``tests/configs``, with other values."""
    config = json.loads((CONFIGS / name / "config.json").read_text())
    return target_from_config(config | more, name=name, source="a config")


def of(architecture: str, **values: Any) -> tuple[LayerGroup, ...]:
    """Of a config that is written here."""
    config = {
        "architectures": [architecture],
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "hidden_size": 64,
        "vocab_size": 100,
    }
    return target_from_config(config | values, name="x", source="a config").groups


def brief(groups: tuple[LayerGroup, ...]) -> list[tuple[Any, ...]]:
    """Kind, count and backend."""
    return [(group.kind, group.count, group.backend) for group in groups]


def test_every_config_is_read() -> None:
    folders = sorted(CONFIGS.iterdir())
    assert len(folders) > 50
    for folder in folders:
        if "speculator" not in folder.name:
            assert read_target(str(folder)).vocab_size > 30_000


def test_deepseek_v3_2() -> None:
    """Sparse MLA takes the latent's size; the indexer has heads and a cache of its own."""
    mla, indexer = facts("deepseek-v3.2").groups
    assert (mla.kind, mla.count, mla.head_size) == (Kind.MLA_SPARSE, 61, 576)
    assert (mla.num_heads, mla.num_kv_heads, mla.where) == (128, 1, "index_topk")
    assert (indexer.kind, indexer.count, indexer.head_size) == (Kind.INDEXER, 61, 128)
    assert (indexer.num_heads, indexer.backend) == (64, "DEEPSEEK_V32_INDEXER")


@pytest.mark.parametrize(
    ("more", "indexers"),
    [
        ({}, 78),
        ({"index_topk_freq": 4}, 21),  # 0, 1, then every fourth: 5, 9, ... 77
        ({"index_topk_pattern": "F" + "S" * 77}, 1),
        ({"index_topk_pattern": "FS"}, 77),  # those that it does not reach have one
    ],
)
def test_layers_may_share_an_indexer(more: dict[str, Any], indexers: int) -> None:
    assert facts("glm-5", **more).groups[1].count == indexers


V4 = {"num_hidden_layers": 6, "head_dim": 512, "sliding_window": 128, "index_topk": 512}
V4 |= {"index_head_dim": 128, "index_n_heads": 64, "model_type": "deepseek_v4"}


@pytest.mark.parametrize(
    "more",
    [
        {"compress_ratios": [0, 0, 4, 128, 4, 128, 0]},  # with the MTP module's at the end
        {
            "layer_types": ["sliding_attention"] * 2
            + ["compressed_sparse_attention", "heavily_compressed_attention"] * 2
        },
    ],
)
def test_deepseek_v4(more: dict[str, Any]) -> None:
    assert brief(of("DeepseekV4ForCausalLM", **V4, **more)) == [
        (Kind.OTHER, 6, "DEEPSEEK_SPARSE_SWA"),
        (Kind.OTHER, 4, "DEEPSEEK_V4_SPARSE_MLA"),
        (Kind.OTHER, 6, "CompressorBackend"),  # four, and the two of the indexers
        (Kind.INDEXER, 2, "DEEPSEEK_V4_INDEXER"),
    ]


def test_deepseek_v4_as_its_class_writes_it() -> None:
    """Two heavy ones, then in turn light and heavy."""
    assert brief(of("DeepseekV4ForCausalLM", **V4))[3] == (Kind.INDEXER, 2, "DEEPSEEK_V4_INDEXER")


def test_deepseek_v4_1() -> None:
    groups = of(
        "DeepseekV41ForCausalLM",
        **V4 | {"model_type": "deepseek_v41"},
        compress_ratios=[0, 0, 1, 2, 2, 2],
        kv_source_layer_ids=[2, 3],
        index_source_layer_ids=[2, 3, 5],
    )
    assert brief(groups) == [
        (Kind.OTHER, 6, "DEEPSEEK_V41_SPARSE_SWA"),
        (Kind.OTHER, 2, "DEEPSEEK_V41_SPARSE_MLA"),
        (Kind.OTHER, 1, "CompressorBackend"),
        (Kind.INDEXER, 2, "DEEPSEEK_V41_INDEXER"),
    ]


def test_kimi_linear() -> None:
    delta, mla = facts("kimi-linear-48b-a3b").groups
    assert (delta.kind, delta.count, delta.backend) == (Kind.GDN, 20, None)
    assert (mla.kind, mla.count, mla.head_size, mla.num_heads) == (Kind.MLA, 7, 576, 32)


def test_kimi_k3_has_a_backend_of_its_own_for_delta_attention() -> None:
    text = json.loads((CONFIGS / "kimi-linear-48b-a3b/config.json").read_text())
    text["linear_attn_config"]["use_full_rank_gate"] = True
    config = {
        "architectures": ["KimiK3ForConditionalGeneration"],
        "model_type": "kimi_k3",
        "text_config": text,
    }
    delta, mla = target_from_config(config, name="x", source="a config").groups
    assert (delta.kind, delta.backend) == (Kind.GDN, "KIMI_K3_KDA")
    assert mla.where == "text_config.kv_lora_rank"


def test_bailing() -> None:
    """One layer of each group of eight is MLA."""
    linear, mla = facts("ring-flash-2.5").groups
    assert (linear.kind, linear.count, linear.backend) == (Kind.LINEAR, 28, "BAILING_LINEAR_ATTN")
    assert (mla.kind, mla.count, mla.head_size) == (Kind.MLA, 4, 576)


def test_bailing_v3_fills_up_with_mla() -> None:
    groups = of("BailingMoeV3ForCausalLM", num_hidden_layers=11, layer_group_size=4)
    assert brief(groups) == [(Kind.GDN, 6, None), (Kind.MLA, 5, None)]


def test_minimax_m3() -> None:
    sparse = {
        "sparse_attention_freq": [0, 1, 1, 1],
        "sparse_index_dim": 128,
        "sparse_num_index_heads": 4,
    }
    full, main, indexer = of("MiniMaxM3SparseForCausalLM", sparse_attention_config=sparse)
    assert brief((full, main, indexer)) == [
        (Kind.FULL, 1, None),
        (Kind.OTHER, 3, "MINIMAX_M3_SPARSE"),
        (Kind.INDEXER, 3, "MINIMAX_M3_SPARSE_INDEXER"),
    ]
    assert (indexer.head_size, indexer.num_heads) == (128, 4)


def test_step5() -> None:
    groups = of(
        "Step5ForCausalLM",
        layer_types=["full_attention", "sliding_attention"] * 2,
        sliding_window=512,
        swa_num_attention_heads=16,
        num_attention_groups=2,
        sparse_config={"enabled": True},
    )
    sparse, sliding, *caches = groups
    assert (sparse.backend, sparse.count, sparse.num_heads) == ("STEP5_DSA", 2, 8)
    assert (sliding.backend, sliding.count, sliding.num_heads) == ("STEP5_FLASH_ATTN", 2, 16)
    assert (sliding.num_kv_heads, sliding.head_size) == (2, 8)
    assert [cache.backend for cache in caches] == ["STEP5_CSA_SUMMARY", "STEP5_CSA_TAIL_RING"]


def test_step5_with_sparse_attention_switched_off() -> None:
    groups = of(
        "Step5ForCausalLM", layer_types=["full_attention"] * 4, sparse_config={"enabled": False}
    )
    assert brief(groups) == [(Kind.OTHER, 4, "STEP5_FLASH_ATTN")]


def test_qwen4() -> None:
    types = ["linear_attention"] * 3 + ["indexed_attention"]
    groups = of("Qwen4ExpForCausalLM", layer_types=types, indexer_n_heads=4)
    assert brief(groups) == [(Kind.GDN, 3, None), (Kind.OTHER, 1, "QWEN4_EXP_QSA_TRITON")]
    plain = of("Qwen4ExpForCausalLM", layer_types=types)
    assert brief(plain) == [(Kind.GDN, 3, None), (Kind.FULL, 1, None)]


def test_mimo_v2_has_keys_and_values_of_two_sizes() -> None:
    full, sliding = facts("mimo-v2-flash").groups
    assert (full.kind, full.count, full.num_kv_heads, full.sink) == (Kind.FULL, 9, 4, False)
    assert (sliding.kind, sliding.count, sliding.num_kv_heads) == (Kind.SLIDING, 39, 8)
    assert sliding.sink
    assert {full.backend, sliding.backend} == {"FLASH_ATTN_DIFFKV"}


def test_gemma_3n() -> None:
    sliding, full = facts("gemma-3n-e2b").groups
    assert (sliding.kind, sliding.count) == (Kind.SLIDING, 24)
    assert (full.kind, full.count, full.head_size) == (Kind.FULL, 6, 256)


def test_gemma_4() -> None:
    """Full layers have larger heads and may have fewer; images attend to themselves."""
    text = {
        "model_type": "gemma4_text",
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_global_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "use_bidirectional_attention": "vision",
    }
    config = {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "text_config": text,
    }
    sliding, full = target_from_config(config, name="x", source="a config").groups
    assert (sliding.count, sliding.head_size, sliding.num_kv_heads) == (5, 256, 4)
    assert (full.count, full.head_size, full.num_kv_heads) == (1, 512, 1)
    assert sliding.mm_prefix
    assert full.mm_prefix
    text["use_bidirectional_attention"] = None
    groups = target_from_config(config, name="x", source="a config").groups
    assert not any(group.mm_prefix for group in groups)


def test_a_model_around_another() -> None:
    (group,) = facts("internvl3-8b").groups
    assert (group.kind, group.count, group.num_kv_heads) == (Kind.FULL, 28, 4)
    assert group.where == "llm_config.num_hidden_layers"


@pytest.mark.parametrize(
    ("architecture", "values", "expected"),
    [
        (
            "GraniteForCausalLM",
            {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 128},
            [(Kind.SLIDING, 2, True), (Kind.FULL, 2, True)],
        ),
        ("GraniteForCausalLM", {}, [(Kind.FULL, 4, False)]),
        (
            "LagunaForCausalLM",
            {
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "sliding_window": 128,
                "swa_attention_sink_enabled": True,
            },
            [(Kind.SLIDING, 2, True), (Kind.FULL, 2, False)],
        ),
        (
            "Rnj1ForCausalLM",
            {"layer_types": ["chunked_attention", "full_attention"] * 2, "sliding_window": 128},
            [(Kind.SLIDING, 2, False), (Kind.FULL, 2, False)],
        ),
        (
            "ExaoneMoeForCausalLM",
            {
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "sliding_windows": [128, 0, 128, 0],
            },
            [(Kind.SLIDING, 2, False), (Kind.FULL, 2, False)],
        ),
        (
            "DomynEdgeForCausalLM",
            {"window_sizes": [[0, 0], [128, 0], [128, 0], [-1, 0]]},
            [(Kind.FULL, 2, False), (Kind.SLIDING, 2, False)],
        ),
        (
            "PanguEmbeddedForCausalLM",
            {"interleaved_sliding_window": [None, 128]},
            [(Kind.FULL, 2, False), (Kind.SLIDING, 2, False)],
        ),
        ("PanguEmbeddedForCausalLM", {}, [(Kind.FULL, 4, False)]),
        (
            "AfmoeForCausalLM",
            {"model_type": "afmoe"},
            [(Kind.SLIDING, 3, False), (Kind.FULL, 1, False)],
        ),
    ],
)
def test_how_layers_are_told_apart(
    architecture: str, values: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    groups = of(architecture, **values)
    assert [(group.kind, group.count, group.sink) for group in groups] == expected


def test_decilm_leaves_attention_out_of_some_layers() -> None:
    blocks = [
        {"attention": {"no_op": True}},
        {"attention": {"no_op": False, "n_heads_in_group": 4}},
        {"attention": {"n_heads_in_group": 8}},
    ]
    groups = of("DeciLMForCausalLM", block_configs=blocks)
    assert [(group.count, group.num_kv_heads) for group in groups] == [(1, 2), (1, 1)]


def test_the_window_is_switched_off() -> None:
    config = json.loads((CONFIGS / "mistral-7b-v0.1/config.json").read_text())
    on = target_from_config(config, name="x", source="y")
    off = target_from_config(config, name="x", source="y", disable_sliding_window=True)
    assert [group.kind for group in (*on.groups, *off.groups)] == [Kind.SLIDING, Kind.FULL]


@pytest.mark.parametrize(
    ("more", "kinds"),
    [
        ({"use_sliding_window": True, "max_window_layers": 0}, [Kind.SLIDING]),
        ({"use_sliding_window": True}, [Kind.FULL]),  # from layer 28 of 28 on
        ({"use_sliding_window": True, "max_window_layers": 10}, [Kind.FULL]),  # vLLM knows none
        ({"max_window_layers": 0}, [Kind.FULL]),
    ],
)
def test_the_switch_of_qwen(more: dict[str, Any], kinds: list[Kind]) -> None:
    assert [group.kind for group in facts("qwen2.5-7b", **more).groups] == kinds


def test_overrides_are_merged(tmp_path: Path) -> None:
    folder = CONFIGS / "gemma-3-4b"
    seen = read_target(str(folder), overrides={"text_config": {"num_hidden_layers": 6}})
    assert [group.count for group in seen.groups] == [5, 1]


@pytest.mark.parametrize(
    ("config", "asked", "dtype"),
    [
        ({"torch_dtype": "float32"}, None, "bfloat16"),
        ({"torch_dtype": "float16"}, "auto", "float16"),
        ({"dtype": "float16", "torch_dtype": "bfloat16"}, None, "float16"),
        ({"torch_dtype": None}, None, "bfloat16"),
        ({}, "half", "float16"),
        ({}, "float32", "float32"),
    ],
)
def test_the_dtype(config: dict[str, Any], asked: str | None, dtype: str) -> None:
    whole = json.loads((CONFIGS / "llama-3.1-8b/config.json").read_text()) | config
    assert target_from_config(whole, name="x", source="y", dtype=asked).dtype == dtype


def test_a_drafter_of_the_library_speculators_is_no_target() -> None:
    with pytest.raises(CheckError, match="Qwen/Qwen3-8B") as caught:
        read_target(str(CONFIGS / "qwen3-8b-speculator-eagle3"))
    assert caught.value.code is Code.QUESTION_MODEL


def test_every_backend_that_a_rule_names_is_in_the_tables() -> None:
    text = "".join(
        Path(str(module.__file__)).read_text() for module in (attention, hybrid, latent, own)
    )
    names = set(re.findall(r'"((?:[A-Z0-9]+_)+[A-Z0-9]+|CompressorBackend)"', text))
    assert len(names) > 15
    assert names - set(rows("0.33.0")) == set()
    assert {name for name in names - set(rows("0.32.0")) if "STEP5" not in name} == set()
