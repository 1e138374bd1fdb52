"""The rules for layers against the source of vLLM's model code, also where none can be built."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.vllm_source import tree_of
from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.model import attention, draft_layers, hybrid, latent, mtp, own
from vllm_av.preflight.model.catalogue import AROUND, RULES, Rule
from vllm_av.preflight.model.defaults import of_types
from vllm_av.preflight.model.heads import _ON_BY_DEFAULT

NEWER = {
    "AliceAIForCausalLM",
    "DomynEdgeForCausalLM",
    "Step5ForCausalLM",
    "Step5ForConditionalGeneration",
}
"""Not in vLLM 0.32.0."""
PASSED = "per_layer_sliding_window="
PER_LAYER = re.compile(r"per_layer_sliding_window=(?!attn_window_size)")
ELSEWHERE = {
    "GraniteMoeSWAForCausalLM": "granitemoe",
    "GraniteMoeSharedForCausalLM": "granitemoe",
    "Ministral3ForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MistralLarge3ForCausalLM": "deepseek_v2",
    "NemotronHPuzzleForCausalLM": "nemotron_h",
}
"""Where the layers' code is, for a module that takes them from another."""
TWO_MODELS = {"CohereForCausalLM", "DeepseekForCausalLM", "SarvamMoEForCausalLM"}
"""Of one module with a model that tells its layers apart."""
SAID: dict[Rule, tuple[str, ...]] = {
    attention.by_type: (PASSED,),
    attention.domyn_edge: (PASSED, "window_sizes"),
    attention.exaone_moe: (PASSED, "sliding_windows"),
    attention.gemma4: (PASSED, "per_layer_config"),
    attention.gpt_oss: (PASSED, "self.layer_idx % 2 == 0", "sinks="),
    attention.granite: (PASSED, "sinks="),
    attention.interleaved: ("interleaved_sliding_window",),
    attention.laguna: ("num_attention_heads_per_layer", "swa_attention_sink_enabled"),
    attention.llama4: ("ChunkedLocalAttention", "no_rope_layers", "attention_chunk_size"),
    attention.mimo_v2: ("hybrid_layer_pattern", "swa_num_key_value_heads", "DIFFKV"),
    attention.minicpm3: ("self.qk_head_dim", "num_kv_heads=self.num_local_heads"),
    attention.decilm: ("attention.no_op", "n_heads_in_group"),
    attention.rnj1: ("chunked_attention", PASSED),
    attention.step3p5: ("attention_other_setting", "num_attention_groups"),
    hybrid.bailing_linear: ("layer_group_size", "MultiHeadLatentAttentionWrapper"),
    hybrid.bailing_v3: ("layer_group_size", "MultiHeadLatentAttentionWrapper", "GDN_ATTN"),
    hybrid.falcon_h1: ("MambaMixer2(", "Attention("),
    hybrid.gated_delta: ("GatedDeltaNetAttention(", "linear_attention"),
    hybrid.granite_hybrid: ("MambaMixer2(", "layer_types"),
    hybrid.jamba: ("MambaMixer(", "layers_block_type"),
    hybrid.kimi_linear: ("use_full_rank_gate", "is_kda_layer", "KIMI_K3_KDA"),
    hybrid.lfm2: ("ShortConv(", 'layer_types[layer_idx] == "full_attention"'),
    hybrid.mamba1: ("MambaMixer(",),
    hybrid.mamba2: ("MambaMixer2(",),
    hybrid.nemotron_h: ("MambaMixer2(", "hybrid_override_pattern"),
    hybrid.qwen4_exp: ("QwenGatedDeltaNetAttention(", "indexer_n_heads", "ple_layer_ids"),
    hybrid.zamba2: ("MambaMixer2(", '"hybrid"', "attention_head_dim"),
    latent.deepseek: ("MLAAttention",),
    latent.deepseek_v4: ("DeepseekV4SWACache(", "DeepseekCompressor(", "DeepseekV4IndexerCache"),
    latent.deepseek_v41: ("kv_source_layer_ids", "index_source_layer_ids", "compress_ratios"),
    latent.latent: ("MultiHeadLatentAttentionWrapper",),
    latent.longcat: ("DeepseekV2MLAAttention(", "for i in range(2)"),
    latent.pangu_ultra: ("OpenPanguMLAAttention(", "use_mla"),
    own.minimax_m3: ("sparse_attention_freq", "MINIMAX_M3_SPARSE", "sparse_num_index_heads"),
    own.step5: ("STEP5_DSA", "STEP5_CSA_SUMMARY", "STEP5_CSA_TAIL_RING", "attention_other_setting"),
}
"""What the code must say for a rule to hold."""


@pytest.fixture(scope="module", params=SUPPORTED)
def tree(request: pytest.FixtureRequest) -> Path:
    return tree_of(request.param)


def modules(tree: Path) -> dict[str, str]:
    """Architecture -> its module, of the registry's tables."""
    found: dict[str, str] = {}
    text = (tree / "model_executor/models/registry.py").read_text()
    for node in ast.parse(text).body:
        names = [name.id for name in getattr(node, "targets", ()) if isinstance(name, ast.Name)]
        if not names or not names[0].endswith("_MODELS") or not isinstance(node, ast.Assign):
            continue
        if isinstance(node.value, ast.Dict) and "PREVIOUSLY" not in names[0]:
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                    found[key.value] = ast.literal_eval(value)[0]
    return found


def code(tree: Path, module: str) -> str:
    """The source of a module, or of all in a package."""
    if module.startswith("vllm."):
        folder = tree / module.removeprefix("vllm.").replace(".", "/")
        return "\n".join(file.read_text() for file in sorted(folder.rglob("*.py")))
    if module == "transformers":
        module = "transformers/base"  # of any model: it says it as a keyword of a call
        return code(tree, module).replace('kwargs["per_layer_sliding_window"] =', PASSED)
    return (tree / f"model_executor/models/{module}.py").read_text()


def offered(tree: Path) -> Iterator[str]:
    """Every architecture that has a rule, as far as this vLLM has it."""
    old = tree == tree_of("0.32.0")
    return (name for name in (*RULES, *AROUND) if not (old and name in NEWER))


def test_vllm_has_every_architecture(tree: Path) -> None:
    there = modules(tree)
    assert [name for name in offered(tree) if name not in there] == []


def test_what_is_newer_is_not_in_the_older_one() -> None:
    there = modules(tree_of("0.32.0"))
    assert NEWER.isdisjoint(there)
    assert set(modules(tree_of("0.33.0"))) >= NEWER


def test_the_code_says_what_a_rule_takes_it_to_say(tree: Path) -> None:
    there = modules(tree)
    missing = []
    for name in set(offered(tree)).intersection(RULES):
        text = code(tree, ELSEWHERE.get(name, there[name]))
        for said in SAID.get(RULES[name], ()):
            if said not in text:
                missing.append((name, said))
    assert missing == []


def test_models_that_tell_no_layers_apart(tree: Path) -> None:
    there = modules(tree)
    for name in set(offered(tree)).intersection(RULES) - TWO_MODELS:
        if RULES[name] in (attention.alike, attention.switched):
            text = code(tree, there[name])
            assert not PER_LAYER.search(text.replace("per_layer_sliding_window=per_layer", "")), (
                name
            )
            assert not re.search(r"MambaMixer|GatedDeltaNet|MLAAttention\(|ShortConv\(", text), name


def test_every_rule_is_held_against_something(tree: Path) -> None:
    assert set(RULES.values()) - set(SAID) == {attention.alike, attention.switched}


@pytest.mark.parametrize("heads", ["nvidia", "amd"])
def test_which_heads_are_on_where_a_config_says_nothing(tree: Path, heads: str) -> None:
    on, off = 'config, "enable_confidence_head", True', 'config, "enable_confidence_head", False'
    assert on in (tree / f"models/deepseek_v4/{heads}/dspark.py").read_text()
    assert on in (tree / f"models/deepseek_v41/{heads}/dspark.py").read_text()
    for module in ("qwen3_dspark", "gemma4_dspark"):
        assert off in (tree / f"model_executor/models/{module}.py").read_text()
    assert {"DSparkDraftModel", "DSparkV41DraftModel"} == _ON_BY_DEFAULT


def test_every_row_of_mtp_is_one_of_vllms(tree: Path) -> None:
    text = (tree / "config/speculative.py").read_text()
    start = text.index("def hf_config_override")
    body = text[start : text.index("def __post_init__", start)]
    old = tree == tree_of("0.32.0")
    rows = {**mtp.BY_ARCHITECTURE, **mtp.BY_TYPE}
    for name, row in rows.items():
        if old and "step5" in row.model_type:
            continue
        for word in (name, row.architecture, row.model_type):
            assert f'"{word}"' in body, (name, word)
    # And none of vLLM's is missing.
    ours = {row.architecture for row in rows.values()} | {"InklingMTPModel"}
    theirs = set(re.findall(r'"(\w+MTP(?:Model)?)"', body))
    assert theirs - ours == ({"ParseAuxMTPModel"} if not old else set())


def test_what_classes_add_is_what_they_add() -> None:
    """``defaults.json`` against the config classes of the transformers that is installed."""
    import dataclasses

    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    wrong = []
    for kind, values in of_types().items():
        fields = {field.name: field.default for field in dataclasses.fields(CONFIG_MAPPING[kind])}
        wrong += [(kind, name) for name, value in values.items() if fields.get(name) != value]
    assert wrong == []


def test_the_file_of_what_classes_add_is_sorted() -> None:
    assert list(of_types()) == sorted(of_types())


def test_drafters_that_have_layers_are_vllms(tree: Path) -> None:
    there = modules(tree)
    plain = draft_layers._FULL.split()
    hidden = draft_layers._MLA.split()
    names = [*plain, *hidden, *draft_layers._EAGLE.split(), *draft_layers._EAGLE_MLA]
    assert [name for name in names if name not in there] == []
    for name in (*hidden, *draft_layers._EAGLE_MLA):
        text = code(tree, there[name])
        words = ("MLAAttention", "DeepseekV2DecoderLayer", "Glm4MoeLiteDecoderLayer")
        assert any(word in text for word in (*words, "OpenPanguDecoderLayer")), name
    for name in plain:
        assert "MLAAttention" not in code(tree, there[name]), name
    for name in ("Qwen3NextMTP", "Qwen3_5MTP"):
        assert 'layer_type="full_attention"' in code(tree, there[name])
