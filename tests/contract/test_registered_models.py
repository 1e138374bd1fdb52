"""What is said of single architectures, against the source of each supported vLLM."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.registered_models import Registered
from tests.contract.vllm_source import tree_of
from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.model import fit
from vllm_av.preflight.model.lenders import lacking
from vllm_av.preflight.model_hooks import GRAPHS, HOOKS
from vllm_av.preflight.rules.target import _OWN_ALONE

BY_PLATFORM = {"DeepseekV4ForConditionalGeneration", "KimiLinearForCausalLM"}
"""Which lend on NVIDIA's GPUs and not everywhere."""
SETTLED = {
    *("backend", "flash_attn_version", "use_non_causal", "cache_dtype", "block_size"),
    *("max_cudagraph_capture_size", "cudagraph_capture_sizes", "cudagraph_mode", "mode"),
    *("max_num_seqs", "max_num_batched_tokens", "enable_adaptive_verification"),
}
"""Attributes of vLLM's config that an answer hangs on."""
OTHERS = {
    "DiffusionGemmaForBlockDiffusion": "it denoises blocks, and nothing drafts for it",
    "EmbeddingGemma2Model": "it makes no text",
    "UnlimitedOCRForCausalLM": "its layers are not known",
}
"""Why their hooks are not followed."""


@pytest.fixture(scope="module", params=SUPPORTED)
def tree(request: pytest.FixtureRequest) -> tuple[str, Path]:
    return request.param, tree_of(request.param)


@pytest.mark.timeout(180)
def test_targets_that_lend_no_states_are_those_without_the_interface(
    tree: tuple[str, Path],
) -> None:
    version, package = tree
    models = Registered(package)
    lend = {
        name: ["SupportsEagle3" in each for each in models.lineages(*where)]
        for name, where in models.served().items()
    }
    assert all(lend.values())  # each was found
    assert {name for name, each in lend.items() if not any(each)} == lacking(version)
    assert {name for name, each in lend.items() if any(each) and not all(each)} == BY_PLATFORM
    assert lend["LlamaForCausalLM"] == [True]


def test_what_is_rewritten_for_single_models_is_followed(tree: tuple[str, Path]) -> None:
    version, package = tree
    parsed = ast.parse((package / "model_executor/models/config.py").read_text())
    classes = {node.name: node for node in parsed.body if isinstance(node, ast.ClassDef)}
    (table,) = (
        node.value
        for node in parsed.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "MODELS_CONFIG_MAP"
    )
    assert isinstance(table, ast.Dict)
    rewritten = {
        ast.literal_eval(key)
        for key, value in zip(table.keys, table.values, strict=True)
        if key is not None and set(_assigned(classes, ast.unparse(value))) & SETTLED
    }
    followed = {*HOOKS, *GRAPHS, *OTHERS}
    newer = {"Glm5NextForCausalLM", "Glm5NextForConditionalGeneration"}
    assert rewritten == (followed - newer if version == "0.32.0" else followed)


def _assigned(classes: dict[str, ast.ClassDef], name: str) -> Iterator[str]:
    """The attributes that a class and its bases assign, and those of the classes it calls."""
    node = classes.get(name)
    if node is None:
        return
    for base in node.bases:
        yield from _assigned(classes, ast.unparse(base))
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            yield from (place.attr for place in each.targets if isinstance(place, ast.Attribute))


def test_some_draft_by_themselves_alone(tree: tuple[str, Path]) -> None:
    text = (tree[1] / "model_executor/models/config.py").read_text()
    assert "speculative decoding supports only its native MTP" in text
    served = Registered(tree[1]).served()
    assert {name for name in served if name.startswith("Qwen4Exp")} == set(_OWN_ALONE)


def test_the_width_stands_in_the_code_of_the_drafters(tree: tuple[str, Path]) -> None:
    folder = tree[1] / "model_executor/models"
    parsed = ast.parse((folder / "registry.py").read_text())
    (drafters,) = (
        ast.literal_eval(node.value)
        for node in parsed.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "_SPECULATIVE_DECODING_MODELS"
    )
    modules = {drafters[name][0] for name in (fit._EAGLE3 + fit._DFLASH).split()}
    assert modules == {
        *("deepseek_eagle3", "llama_eagle3", "qwen3_eagle3"),
        *("qwen3_dflash", "qwen3_dflash2", "qwen3_dspark"),
    }
    for module in modules:
        text = (folder / f"{module}.py").read_text()
        assert '"target_hidden_size"' in text or "(DFlashQwen3Model)" in text, module
    own = (tree[1] / "v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py").read_text()
    assert "self.hidden_states[:num_tokens_padded].copy_(hidden_states)" in own
