"""The table of backends against vLLM's own classes, for all that this machine can import.

One process a version and GPU asks the classes, on a platform that pretends the GPU, what the table
answers too: every backend's validity in vLLM's words and order, what it can do, what is tried and
what is taken, with adaptive verification on and off, by vLLM's selector as it is and as the series
makes it.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ci.source_lines import lines
from tests.contract import flashinfer_python
from tests.contract.vllm_source import tree_of
from tests.unit.preflight.backends.setups import DEEPSEEK, group, setup
from vllm_av.patching.tree import find_tree
from vllm_av.patching.verify import tree_source
from vllm_av.preflight.backends.asked import AskedCapabilities
from vllm_av.preflight.backends.classes import ASKED
from vllm_av.preflight.backends.rows import UNNAMEABLE, rows
from vllm_av.preflight.backends.source import line
from vllm_av.preflight.backends.table import TableCapabilities, places
from vllm_av.preflight.backends.versions import VERSIONS
from vllm_av.preflight.capabilities import Candidate, LayerAnswer
from vllm_av.preflight.facts import LayerGroup, LayerKind, Setup

Question = tuple[Setup, Sequence[LayerGroup]]

OFTEN = [
    *(("0.33.0", on) for on in ("sm90", "sm100", "sm120")),
    ("0.32.0", "sm90"),
]
RARELY = [
    ("0.33.0", "sm80"),
    *(("0.32.0", on) for on in ("sm80", "sm100", "sm120")),
    *(
        (version, on)
        for version in VERSIONS
        for on in ("sm75", "sm89", "sm103", "sm121", "gfx90a", "gfx942", "gfx950", "gfx1201")
    ),
    *((version, on) for version in VERSIONS for on in ("xpu", "cpu")),
]
NOT_HERE = {
    "B12X": "cuda",
    "ROCM_AITER_MLA": "aiter",
    "ROCM_AITER_TRITON_MLA": "aiter",
    "MINIMAX_M3_SPARSE": "torchvision",
    "QWEN4_EXP_QSA_TRITON": "torchvision",
    "STEP5_CSA_SUMMARY": "torchvision",
}
"""Backends that cannot be asked -> what their modules import that a CPU's environment lacks."""

DENSE_HEADS = (16, 32, 40, 64, 72, 80, 96, 100, 112, 128, 160, 192, 224, 256, 320, 512, 576)
CACHES = ("auto", "auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4")
MORE_CACHES = ("fp8_ds_mla", "turboquant_k8v4", "int8_per_token_head", "nvfp4_ds_mla")
MLA_SIZES = (
    DEEPSEEK,
    {**DEEPSEEK, "qk_nope_head_dim": 192, "v_head_dim": 256, "index_topk": 512},
    {"qk_nope_head_dim": 256, "qk_rope_head_dim": 0, "kv_lora_rank": 512, "index_topk": 2048},
    {"qk_nope_head_dim": 96, "qk_rope_head_dim": 32, "kv_lora_rank": 256},
)


def dense(some: random.Random) -> LayerGroup:
    key_value = some.choice((1, 2, 8, 12, 32))
    return group(
        some.choice((LayerKind.FULL, LayerKind.FULL, LayerKind.SLIDING, LayerKind.CHUNKED)),
        head_size=some.choice(DENSE_HEADS),
        num_heads=some.choice((12, 32, 64)),
        num_kv_heads=key_value,
        sink=some.random() < 0.25,
        mm_prefix=some.random() < 0.25,
    )


def latent(some: random.Random) -> LayerGroup:
    return group(
        some.choice((LayerKind.MLA, LayerKind.MLA_SPARSE, LayerKind.MLA_SPARSE)),
        head_size=some.choice((288, 320, 512, 576, 576)),
        num_heads=some.choice((8, 16, 32, 128)),
    )


def question(on: str, version: str, some: random.Random) -> Question:
    """A random one, of what a user may set."""
    some_cache = some.choice(CACHES if some.random() < 0.85 else MORE_CACHES)
    attention: dict[str, Any] = {}
    if some.random() < 0.2:
        attention["use_non_causal"] = True
    if some.random() < 0.2:
        attention["use_trtllm_attention"] = some.random() < 0.5
    asked = setup(
        on,
        some.choice((1, 2, 3, 7, 15)),
        vllm=version,
        patched=some.random() < 0.5,
        kv_cache_dtype=some_cache,
        block_size=some.choice((None, None, None, 16, 32, 48, 64, 128, 256)),
        tensor_parallel_size=some.choice((1, 1, 2, 4)),
        decode_context_parallel_size=some.choice((1, 1, 1, 2)),
        prefill_context_parallel_size=some.choice((1, 1, 1, 2)),
        attention_backend=some.choice((None, None, some.choice(nameable(version, on)))),
        features={"attention_config": attention, "use_replayssm": some.random() < 0.5},
    )
    target = replace(
        asked.target,
        dtype=some.choice(("bfloat16", "bfloat16", "float16", "float32")),
        config=some.choice(MLA_SIZES),
    )
    return replace(asked, target=target), [dense(some), dense(some), latent(some), latent(some)]


def nameable(version: str, on: str) -> list[str]:
    """Backends of the enum that a user of such a GPU may name."""
    if on in ("cpu", "xpu"):
        taken = {
            "cpu": "CPU_ATTN CPU_MLA",
            "xpu": "FLASH_ATTN FLASH_ATTN_MLA TRITON_ATTN TRITON_MLA",
        }
        return taken[on].split()
    if on.startswith("gfx"):
        named = ("ROCM_", "TRITON_ATTN", "TRITON_MLA", "FLEX_ATTENTION", "TURBOQUANT")
        return [name for name in rows(version) if name.startswith(named)]
    without = UNNAMEABLE | {"XPU_FLASH_ATTN_MLA"}
    return [name for name in rows(version) if name not in without and "ROCM_" not in name]


def of_models(on: str, version: str) -> Iterator[Question]:
    """The layers whose models name their backend."""
    names = [name for name in sorted(UNNAMEABLE) if name in rows(version)]
    groups = [
        group(LayerKind.INDEXER if "INDEXER" in name else LayerKind.OTHER, backend=name)
        for name in names
    ]
    for k in (1, 2, 3, 7):
        for model in ("LlamaForCausalLM", "DeepseekV4ForCausalLM", "DeepseekV41ForCausalLM"):
            for replay in (False, True):
                asked = setup(on, k, vllm=version, features={"use_replayssm": replay})
                target = replace(asked.target, architecture=model)
                yield replace(asked, target=target), groups


@pytest.fixture(scope="module")
def with_flashinfer() -> Iterator[None]:
    """FlashInfer's Python, importable in the processes that ask."""
    patched = pytest.MonkeyPatch()
    patched.setenv("PYTHONPATH", str(flashinfer_python.folder()))
    yield
    patched.undo()


def ask(version: str, questions: Sequence[Question]) -> list[tuple[LayerAnswer, ...]]:
    """What the classes of the vLLM of that version say."""
    asked = AskedCapabilities(str(tree_of(version).parents[3] / "bin/python"), limit=240)
    answers = asked.ask(questions)
    assert asked.failed is None
    return answers


def compare(version: str, on: str, questions: Sequence[Question]) -> int:
    """Hold the table against the classes; how many backends were asked."""
    table = TableCapabilities(version)
    count = 0
    for (asked, groups), answers in zip(questions, ask(version, questions), strict=True):
        for one, found in zip(groups, answers, strict=True):
            expected = table.answer(asked, one)
            why = f"{version} {on} {asked} {one}"
            assert [plain(each) for each in found.candidates] == [
                plain(each) for each in expected.candidates
            ], why
            assert name(found.chosen) == name(expected.chosen), why
            assert name(found.without) == name(expected.without), why
            for each in found.candidates:
                here = each.source == ASKED
                assert here or NOT_HERE.get(each.name, "nothing") in each.note, each
                count += here
    return count


def plain(each: Candidate) -> tuple[Any, ...]:
    """All but how it is known."""
    return (each.name, each.invalid, each.lens, each.graphs, each.bound)


def name(each: Candidate | None) -> str | None:
    return None if each is None else each.name


@pytest.mark.usefixtures("with_flashinfer")
@pytest.mark.parametrize(
    ("version", "on"),
    [*OFTEN, *(pytest.param(*each, marks=pytest.mark.full) for each in RARELY)],
)
def test_the_table_says_what_the_classes_say(version: str, on: str) -> None:
    some = random.Random(f"{version} {on}")
    questions = [question(on, version, some) for _ in range(100)]
    assert compare(version, on, [*questions, *of_models(on, version)]) > 900


@pytest.mark.full
@pytest.mark.usefixtures("with_flashinfer")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("on", "attention", "environment"),
    [
        ("sm90", {"flash_attn_version": 2}, {}),
        ("sm90", {"flash_attn_version": 4}, {}),
        ("sm100", {"flash_attn_version": 3}, {}),
        ("sm100", {}, {"VLLM_BATCH_INVARIANT": "1"}),
        ("gfx942", {}, {"VLLM_ROCM_USE_AITER": "1"}),
        ("gfx1201", {}, {"VLLM_ROCM_USE_AITER": "1"}),
    ],
)
def test_what_vllm_reads_once_a_process(
    version: str, on: str, attention: dict[str, Any], environment: dict[str, str]
) -> None:
    asked = setup(on, vllm=version, features={"attention_config": attention})
    kinds = (LayerKind.FULL, LayerKind.SLIDING, LayerKind.MLA, LayerKind.MLA_SPARSE)
    groups = [group(kind) for kind in kinds]
    groups += [group(head_size=256), group(head_size=256, sink=True)]
    assert compare(version, on, [(replace(asked, environment=environment), groups)]) > 20


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lines_are_those_of_the_source(version: str) -> None:
    source = tree_source(find_tree(tree_of(version).parent))
    found = lines(source.read, version)
    assert {line(version, place) for place in places(version)} == {
        f"{place.partition(':')[0].rpartition('/')[2]}:{number}" for place, number in found.items()
    }
