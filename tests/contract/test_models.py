"""What this package reads out of a config, against what each supported vLLM makes of it."""

import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.contract import model_worker
from tests.contract.vllm_source import NEWEST_OFTEN, plain_environment, tree_of
from vllm_av.drafters import SUPPORTED, drafter_type
from vllm_av.errors import CheckError
from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model import read_draft, read_target, target_from_config
from vllm_av.preflight.model.catalogue import RULES
from vllm_av.preflight.model.defaults import of_types

CONFIGS = Path(__file__).parents[1] / "configs"
DATA = Path(__file__).parents[2] / "vllm_av/data"
NOT_BUILT = {
    "deepseek-v4-flash": "it makes an event of CUDA's while it is built",
    "gemma-3n-e2b": "it reads a number while it is built",
    "gemma-4-31b": "its code imports a library for images",
    "internvl3-8b": "its config needs the code beside its weights",
    "kimi-linear-48b-a3b": "its code imports CUDA's compiler",
    "ring-flash-2.5": "its config needs the code beside its weights",
}
"""Why vLLM cannot build them here; unit tests say their layers."""
NOT_ALONE = frozenset(
    {
        *("afmoe", "apertus", "bloom", "dbrx", "deepseek_v32", "deepseek_v4", "gemma3n_text"),
        *("glm4_moe", "glm4_moe_lite", "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3"),
        *("kimi_linear", "lfm2", "lfm2_moe", "longcat_flash", "mimo_v2_flash", "minimax_m2"),
        *("nemotron", "nemotron_h", "qwen4_exp_text", "zamba2"),
    }
)
"""Types whose own values vLLM cannot build on the CPU, or that make no config of a model."""
TARGETS = sorted(
    folder.name
    for folder in CONFIGS.iterdir()
    if json.loads((folder / "config.json").read_text())["architectures"][0]
    not in {"LlamaForCausalLMEagle3", "Eagle3Speculator", "DSparkSpeculator"}
    and not any(part in folder.name for part in ("-dflash", "-dspark", "-lilicorr", "-xpress"))
)
STATE = {
    LayerKind.MAMBA1: "MAMBA1",
    LayerKind.MAMBA2: "MAMBA2",
    LayerKind.SHORT_CONV: "SHORT_CONV",
    LayerKind.LINEAR: "LINEAR",
    LayerKind.GDN: "GDN_ATTN",
    LayerKind.INDEXER: "INDEXER",
}


def own(target: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """MTP in the target itself."""
    return target, {"method": "mtp", **more}


def of(target: str, drafter: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """A drafter beside a target."""
    return target, {"model": str(CONFIGS / drafter), **more}


K = {"num_speculative_tokens": 3}
DRAFTS = [
    own("deepseek-v3", **K),
    own("deepseek-v3.2", num_speculative_tokens=1),
    own("glm-4.5-air", **K),
    own("glm-4.7-flash", **K),
    own("glm-5", **K),
    own("longcat-flash", **K),
    own("mimo-7b", **K),
    own("mimo-v2-flash", **K),
    own("qwen3-next-80b-a3b", num_speculative_tokens=2),
    own("qwen3.5-27b", **K),
    own("step-3.5-flash", **K),
    own("step-3.5-flash", num_speculative_tokens=4),
    own("llama-3.1-8b", **K),
    own("minimax-m2", **K),
    own("nemotron-nano-9b-v2", **K),
    ("deepseek-v3", {"method": "deepseek_mtp", **K}),
    ("deepseek-v3", {"model": str(CONFIGS / "deepseek-v3"), **K}),
    ("deepseek-v3", {"model": str(CONFIGS / "deepseek-v3"), "method": "mtp"}),
    of("llama-3.1-8b", "llama-3.1-8b-eagle3", **K),
    of("llama-3.1-8b", "llama-3.1-8b-eagle3", method="eagle3", **K),
    of("llama-3.1-8b", "llama-3.1-8b-eagle3", method="eagle3"),
    of("llama-3.1-8b", "llama-3-8b-eagle", method="eagle", **K),
    of("llama-3.1-8b", "llama-3-8b-eagle", **K),
    of("qwen3-8b", "qwen3-8b-dspark-block7"),
    of("qwen3-8b", "qwen3-8b-dspark-block7", method="dspark", num_speculative_tokens=4),
    of("qwen3-8b", "qwen3-8b-dflash-b16", **K),
    of("qwen3-8b", "qwen3-8b-dflash2", method="dflash", **K),
    of("qwen3-8b", "qwen3-8b-lilicorr", method="dflash", **K),
    of("qwen3-8b", "qwen3-8b-xpress", method="dflash", **K),
    of("qwen3-8b", "qwen3-0.6b", **K),
    of("qwen3-8b", "qwen3-0.6b", method="draft_model", parallel_drafting=True, **K),
    of("llama-3.1-8b", "qwen3-0.6b", **K),
    of("llama-3.1-8b", "qwen3-0.6b", method="mtp", **K),
    of("qwen3-8b", "qwen3-8b-speculator-eagle3", method="eagle3", **K),
    of("qwen3-8b", "qwen3-8b-speculator-dspark", method="dspark", **K),
    ("qwen3-8b", {"method": "ngram", **K}),
    ("qwen3-8b", {"method": "eagle3", **K}),
    ("qwen3-8b", {"method": "medusae", **K}),
]


@pytest.fixture(scope="module")
def minimal(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Type of model -> a config that says nothing but its type."""
    folder = tmp_path_factory.mktemp("types")
    found = {}
    for kind, architecture in causal().items():
        found[kind] = folder / kind
        found[kind].mkdir()
        config = {"architectures": [architecture], "model_type": kind, "dtype": "bfloat16"}
        (found[kind] / "config.json").write_text(json.dumps(config))
    return found


def causal() -> dict[str, str]:
    """Type -> its causal architecture in transformers, as far as this package knows both."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    names: Mapping[str, Any] = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return {
        kind: names[kind]
        for kind in of_types()
        if kind not in NOT_ALONE and names.get(kind) in RULES
    }


@pytest.fixture(scope="module", params=NEWEST_OFTEN)
def said(
    request: pytest.FixtureRequest,
    minimal: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What one vLLM says to everything, in one process."""
    folder = tmp_path_factory.mktemp("asked")
    question = {
        "targets": [
            *(str(CONFIGS / name) for name in TARGETS if name not in NOT_BUILT),
            # Once: the classes are transformers' own, the same for both.
            *(map(str, minimal.values()) if request.param == SUPPORTED[-1] else ()),
        ],
        "drafts": [[str(CONFIGS / target), spec] for target, spec in DRAFTS],
    }
    (folder / "question.json").write_text(json.dumps(question))
    done = subprocess.run(
        [
            str(tree_of(request.param).parents[3] / "bin/python"),
            model_worker.__file__,
            str(folder / "question.json"),
            str(folder / "answer.json"),
        ],
        capture_output=True,
        text=True,
        env={
            **plain_environment(),
            "VLLM_PLUGINS": "",
            "VLLM_CACHE_ROOT": str(folder / "cache"),
            "VLLM_LOGGING_LEVEL": "CRITICAL",
            "VLLM_NO_USAGE_STATS": "1",
        },
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return {**answer, "version": request.param}


def row(group: LayerGroup) -> tuple[Any, ...]:
    """A group as the worker names it."""
    if group.kind in STATE:
        return (STATE[group.kind],)
    sizes = (group.head_size, group.num_heads, group.num_kv_heads)
    handed = (group.alibi, group.alibi_sqrt, group.soft_cap)
    return (group.kind.name, *sizes, group.sink, group.mm_prefix, *handed)


def compared(folder: Path, said: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What vLLM says of a target, and what this package does."""
    facts = read_target(str(folder))
    counts: Counter[tuple[Any, ...]] = Counter()
    for group in facts.groups:
        counts[row(group)] += group.count
    ours = {
        "architecture": facts.architecture,
        "vocab_size": facts.vocab_size,
        "dtype": facts.dtype,
        "experts": facts.experts,
        "layers": sorted([*key, count] for key, count in counts.items()),
    }
    theirs = {**said["targets"][str(folder)]}
    config = theirs.pop("config", None)
    if config is not None:  # as an engine asks: the classes have filled it, and renamed some keys
        filled = target_from_config(config, name=str(folder), source="vLLM's config")
        assert [(row(group), group.count) for group in filled.groups] == [
            (row(group), group.count) for group in facts.groups
        ]
        assert (filled.vocab_size, filled.dtype) == (facts.vocab_size, facts.dtype)
    if folder.name == "nemotron-nano-9b-v2":
        # vLLM tells the experts of the config's class, and builds no layer that has any.
        assert theirs["experts"] == 8
        theirs = {**theirs, "experts": 0}
    return theirs, ours


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in NOT_BUILT])
def test_a_target_is_what_vllm_builds(name: str, said: dict[str, Any]) -> None:
    theirs, ours = compared(CONFIGS / name, said)
    assert theirs == ours


def test_a_type_alone_is_what_vllm_builds(said: dict[str, Any], minimal: dict[str, Path]) -> None:
    assert len(minimal) > 50
    if said["version"] != SUPPORTED[-1]:
        pytest.skip("asked of the newest vLLM")
    differing = []
    for kind, folder in minimal.items():
        theirs, ours = compared(folder, said)
        if theirs != ours:
            differing.append((kind, theirs, ours))
    assert differing == []


@pytest.mark.parametrize("case", range(len(DRAFTS)))
def test_a_drafter_is_what_vllm_settles(case: int, said: dict[str, Any]) -> None:
    name, speculative = DRAFTS[case]
    theirs = said["drafts"][case]
    target = read_target(str(CONFIGS / name))
    try:
        ours = read_draft(speculative, target)
    except CheckError:
        assert "error" in theirs
        return
    if ours.type_name == "xpress" and said["version"] == "0.32.0":
        assert "not supported" in theirs["error"] or "inspected" in theirs["error"]
        return  # the table of drafters says which vLLM offers it
    assert "error" not in theirs
    settled = (ours.method, ours.num_speculative_tokens)
    assert settled == (theirs["method"], theirs["num_speculative_tokens"])
    type_name = drafter_type(
        theirs["method"],
        [theirs["architecture"]],
        model_type="gemma4_mtp" if theirs["gemma4"] else None,
        mtp_modules=2 if theirs["many_modules"] else 1,
        parallel=theirs["parallel"] and theirs["method"] not in ("dflash", "dspark"),
        has_head=ours.has_head is not False,
    )
    assert type_name is not None
    assert ours.type_name == type_name.name
    if ours.architecture is not None:
        assert ours.architecture == theirs["architecture"]
        assert ours.draft_vocab_size == theirs["draft_vocab_size"]
