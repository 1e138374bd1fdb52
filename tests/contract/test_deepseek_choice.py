"""What DeepSeek V4 and V4.1 make of a backend's name and of a cache type, against vLLM's own code.

The functions that decide are taken out of the models' files, which import what only a GPU's build
of vLLM has, and run with the names of vLLM's enum for its members.
"""

import ast
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from tests.contract.vllm_source import tree_of
from tests.unit.preflight.rules.checkpoints import CONFIGS
from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.backends.gpus import named
from vllm_av.preflight.facts import DraftFacts, Gpu, LayerGroup, LayerKind, Setup
from vllm_av.preflight.model import read_target
from vllm_av.preflight.reasons import Weight
from vllm_av.preflight.rules import deepseek
from vllm_av.preflight.rules.deepseek import Layers
from vllm_av.preflight.vocabulary import backends, cache_types

FOLDERS = {"V4": "deepseek_v4", "V4.1": "deepseek_v41"}
CLASSES = {
    "DeepseekV4FlashMLAAttention": Layers.FLASHMLA,
    "DeepseekV4MegaAttnAttention": Layers.MEGA,
    "DeepseekV4FlashInferMLAAttention": Layers.FLASHINFER,
    "DeepseekV4FlashInferSM120Attention": Layers.FLASHINFER_SM120,
    "DeepseekV41ROCMAiterMLAAttention": Layers.OTHER,
}
GPUS = ("sm90", "sm100", "sm103", "sm120")


@dataclass(frozen=True)
class Stand:
    """A class of vLLM's, by its name."""

    name: str
    available: bool = True

    def is_available_for(self, config: object) -> bool:
        """As mega attention says of itself."""
        return self.available


@cache
def _compiled(path: Path, name: str) -> CodeType:
    found = next(
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    found.returns = None
    for each in found.args.args:
        each.annotation = None
    return compile(ast.Module([found], []), str(path), "exec")


def function(path: Path, name: str, **names: Any) -> Any:
    """A function of vLLM's, with what it looks up."""
    exec(_compiled(path, name), names)
    return names[name]


def setup_for(model: str, version: str, on: str, **more: Any) -> Setup:
    target = read_target(str(CONFIGS / "deepseek-v4-flash"))
    if model == "V4.1":
        own = LayerGroup(
            LayerKind.OTHER, 43, 512, 64, 1, "layers", backend="DEEPSEEK_V41_SPARSE_SWA"
        )
        target = replace(target, groups=(own,))
    draft = DraftFacts("mtp", "mtp", None, 1, False, True, 129280, 129280, "the target's own")
    gpu = named(on)
    assert gpu is not None
    return Setup(version, True, target, draft, gpu, {}, **more)


def chosen(model: str, version: str, gpu: Gpu, name: str | None, mega: bool) -> Layers | str:
    """What vLLM builds, or its refusal."""
    maker = "nvidia" if gpu.platform == "cuda" else "amd"
    select = function(
        tree_of(version) / f"models/{FOLDERS[model]}/{maker}/model.py",
        "_select_dsv4_attn_cls",
        AttentionBackendEnum=SimpleNamespace(
            **{each: SimpleNamespace(name=each) for each in backends(version)}
        ),
        current_platform=SimpleNamespace(
            get_device_capability=lambda: SimpleNamespace(major=gpu.major)
        ),
        logger=SimpleNamespace(warning_once=lambda *_: None),
        **{each: Stand(each, mega and gpu.major == 10) for each in CLASSES},
    )
    members = select.__globals__["AttentionBackendEnum"]
    config = SimpleNamespace(
        attention_config=SimpleNamespace(backend=name and getattr(members, name)),
        parallel_config=SimpleNamespace(prefill_context_parallel_size=1),
    )
    try:
        return CLASSES[select(config).name]
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("on", GPUS)
@pytest.mark.parametrize("model", FOLDERS)
@pytest.mark.parametrize("version", SUPPORTED)
def test_every_name_is_refused_or_taken_as_vllm_does(version: str, model: str, on: str) -> None:
    refused = set()
    for name in (None, *backends(version)):
        setup = setup_for(model, version, on, attention_backend=name)
        assert setup.gpu is not None
        said = chosen(model, version, setup.gpu, name, mega=True)
        told = list(deepseek.backend(setup))
        if not isinstance(said, Layers):
            refused.add(name)
            assert told, said
            assert all(each.weight is Weight.REFUSAL for each in told)
            assert "is not a DeepSeek" in told[0].found
            assert "is not a DeepSeek" in said
        elif told:  # taken without a word, for a kernel that this GPU does not have
            assert "SM10x" in told[0].found
            assert setup.gpu.major not in (10, 12) or name == "FLASHMLA_MEGA_ATTN_DSV41"
        else:
            assert deepseek.built(setup, setup.gpu, model) is said, name
    assert refused == {"FLASHINFER_MLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM120"}


@pytest.mark.parametrize("version", SUPPORTED)
def test_names_on_rocm_are_refused_as_vllm_does(version: str) -> None:
    for name in (None, *backends(version)):
        setup = setup_for("V4.1", version, "gfx950", attention_backend=name)
        assert setup.gpu is not None
        said = chosen("V4.1", version, setup.gpu, name, mega=False)
        assert bool(list(deepseek.backend(setup))) == (said is not Layers.OTHER), name


def resolved(model: str, version: str, layers: Layers, kind: str) -> str:
    """``""`` where vLLM takes the type, else its refusal."""
    resolve = function(
        tree_of(version) / f"models/{FOLDERS[model]}/attention.py",
        "_resolve_dsv4_kv_cache_dtype",
        torch=SimpleNamespace(uint8=1, float8_e4m3fn=2, bfloat16=3),
        logger=SimpleNamespace(info_once=lambda *_: None),
    )
    packed = layers is not Layers.FLASHINFER
    more = ("nvfp4_ds_mla",) if layers is Layers.MEGA else ()
    try:
        resolve(packed, kind, None, *(more if model == "V4.1" else ()))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", [None, "FLASHINFER_MLA_SPARSE_DSV4", "FLASHMLA_SPARSE"])
@pytest.mark.parametrize("on", [*GPUS, "gfx942", "gfx950"])
@pytest.mark.parametrize("model", FOLDERS)
@pytest.mark.parametrize("version", SUPPORTED)
def test_every_cache_is_refused_as_vllm_does(
    version: str, model: str, on: str, name: str | None
) -> None:
    counted = {True: 0, False: 0}
    for kind in cache_types(version):
        setup = setup_for(model, version, on, attention_backend=name, kv_cache_dtype=kind)
        assert setup.gpu is not None
        layers = deepseek.built(setup, setup.gpu, model)
        said = resolved(model, version, layers, kind)
        told = [each.weight for each in deepseek.cache(setup)]
        counted[bool(said)] += 1
        if said:
            assert told == [Weight.REFUSAL], (kind, said)
        elif told:
            # Taken without a word: of a packed record that only one kernel reads, or not known.
            nvfp4 = kind == "nvfp4_ds_mla" and layers not in (Layers.MEGA, Layers.FLASHINFER)
            assert told == [Weight.REFUSAL if nvfp4 else Weight.UNKNOWN], kind
    assert all(counted.values()) or (model, layers) == ("V4", Layers.FLASHINFER)


def test_mega_attention_is_left_where_its_groups_do_not_fit() -> None:
    setup = setup_for("V4.1", "0.33.0", "sm100", attention_backend=None)
    assert setup.gpu is not None
    assert deepseek.built(setup, setup.gpu, "V4.1") is Layers.MEGA
    many = replace(setup, tensor_parallel_size=16)
    assert deepseek.built(many, setup.gpu, "V4.1") is Layers.FLASHMLA
    asked = replace(many, attention_backend="FLASHMLA_MEGA_ATTN_DSV41")
    (reason,) = deepseek.backend(asked)
    assert "heads on a rank" in reason.found
