"""What the table makes of a layer: order, validity, choice, place in the source."""

import json
import re
from importlib.resources import files
from typing import Any

import pytest

from tests.unit.preflight.backends.setups import group, setup
from vllm_av.preflight.backends.rows import rows
from vllm_av.preflight.backends.table import TableCapabilities, places
from vllm_av.preflight.backends.versions import VERSIONS, nearest
from vllm_av.preflight.capabilities import Candidate, LayerAnswer
from vllm_av.preflight.facts import LayerGroup, LayerKind, Setup


def answer(asked: Setup, layers: LayerGroup | None = None) -> LayerAnswer:
    return TableCapabilities(asked.vllm).answer(asked, layers or group())


def names(found: LayerAnswer) -> list[str]:
    return [each.name for each in found.candidates]


def name(found: Candidate | None) -> str | None:
    return None if found is None else found.name


@pytest.mark.parametrize(
    ("on", "as_it_is", "patched"),
    [
        ("sm80", "FLASH_ATTN", "TRITON_ATTN"),
        ("sm86", "FLASH_ATTN", "TRITON_ATTN"),
        ("sm90", "FLASH_ATTN", "FLASH_ATTN"),
        ("sm100", "FLASHINFER", "FLASHINFER"),
        ("sm120", "FLASH_ATTN", "TRITON_ATTN"),
        ("sm75", "TRITON_ATTN", "TRITON_ATTN"),
        ("gfx942", "ROCM_ATTN", "ROCM_ATTN"),
        ("cpu", "CPU_ATTN", "CPU_ATTN"),
        ("xpu", "FLASH_ATTN", "FLASH_ATTN"),
    ],
)
def test_a_patched_selector_prefers_what_suffices(on: str, as_it_is: str, patched: str) -> None:
    assert name(answer(setup(on)).chosen) == as_it_is
    found = answer(setup(on, patched=True))
    assert name(found.chosen) == patched
    assert name(found.without) == as_it_is
    assert names(found)[0] == patched


def test_a_named_backend_stays_in_a_patched_vllm_for_the_check_to_refuse() -> None:
    for named, suffices in (("FLASH_ATTN", False), ("FLASHINFER", False), ("TRITON_ATTN", True)):
        found = answer(setup("sm80", patched=True, attention_backend=named))
        assert name(found.chosen) == named
        assert found.chosen is not None
        assert found.chosen.suffices(8) is suffices
        # a fix must not cost another question: the rest of the list is there too
        assert {"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN"} <= set(names(found))


def test_an_unpatched_selector_refuses_a_named_backend_that_plans_by_the_hosts_lengths() -> None:
    found = answer(setup("sm90", attention_backend="FLASHINFER"))
    assert found.chosen is None
    assert name(found.without) == "FLASHINFER"
    flashinfer = next(each for each in found.candidates if each.name == "FLASHINFER")
    assert flashinfer.invalid == (
        "device-cpu query lens mismatch not supported, this is needed for adaptive verification",
    )
    assert flashinfer.source == "flashinfer.py:615"


def test_backend_per_kind_goes_before_the_one_for_all_layers() -> None:
    asked = setup(
        "sm90", attention_backend="FLASH_ATTN", backend_per_kind={"sliding_window": "TRITON_ATTN"}
    )
    assert name(answer(asked).chosen) == "FLASH_ATTN"
    assert name(answer(asked, group(LayerKind.SLIDING)).chosen) == "TRITON_ATTN"


@pytest.mark.parametrize(
    ("on", "more", "layers", "chosen"),
    [
        ("sm90", {"kv_cache_dtype": "fp8"}, {}, "FLASH_ATTN"),
        ("sm80", {"kv_cache_dtype": "fp8", "patched": True}, {}, "TRITON_ATTN"),
        ("sm80", {}, {"sink": True}, "TRITON_ATTN"),
        ("sm90", {}, {"sink": True}, "FLASH_ATTN"),
        ("sm100", {"tensor_parallel_size": 2}, {"num_heads": 12, "num_kv_heads": 8}, "FLASH_ATTN"),
        ("sm100", {"environment": {"VLLM_BATCH_INVARIANT": "1"}}, {}, "FLASH_ATTN"),
        ("sm100", {"features": {"attention_config": {"use_non_causal": True}}}, {}, "FLASH_ATTN"),
        (
            "sm100",
            {"features": {"attention_config": {"use_trtllm_attention": False}}},
            {},
            "FLASH_ATTN",
        ),
        ("gfx942", {}, {"sink": True}, "ROCM_AITER_UNIFIED_ATTN"),
        ("gfx942", {"features": {"kv_transfer_config": {"kv_role": "kv_both"}}}, {}, "ROCM_AITER"),
        ("gfx1201", {}, {"sink": True}, "TRITON_ATTN"),
    ],
)
def test_what_the_selector_looks_at(
    on: str, more: dict[str, Any], layers: dict[str, Any], chosen: str
) -> None:
    found = answer(setup(on, **more), group(**layers)).chosen
    assert found is not None
    assert found.name.startswith(chosen)


def test_a_block_that_no_backend_takes() -> None:
    found = answer(setup("sm90", block_size=24))
    assert found.chosen is None
    assert found.without is None
    assert {each.invalid[0] for each in found.candidates[:3]} == {"block_size not supported"}


@pytest.mark.parametrize(
    ("switches", "chosen"),
    [
        ({}, "TRITON_MLA"),
        ({"VLLM_ROCM_USE_AITER": "1"}, "ROCM_AITER_MLA"),
        ({"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MLA": "0"}, "TRITON_MLA"),
    ],
)
def test_aiter_is_used_where_it_is_switched_on(switches: dict[str, str], chosen: str) -> None:
    found = answer(setup("gfx942", environment=switches), group(LayerKind.MLA))
    assert name(found.chosen) == chosen
    # either way it would do, if the user named it
    assert name(found.first_that_suffices(8)) == "ROCM_AITER_MLA"


def test_small_head_counts_take_another_sparse_backend_in_the_newer_vllm() -> None:
    layers = group(LayerKind.MLA_SPARSE, num_heads=16)
    found = {
        version: name(answer(setup("sm100", vllm=version), layers).chosen) for version in VERSIONS
    }
    assert found == {
        "0.33.0": "FLASH_ATTN_MLA_SPARSE_FA4",
        "0.32.0": "FLASHINFER_MLA_SPARSE",
    }


def test_a_name_that_no_table_knows_is_unknown_and_not_guessed() -> None:
    only = answer(setup("sm90"), group(LayerKind.OTHER, backend="NEW_ATTN")).chosen
    assert only == Candidate("NEW_ATTN", ("not in the table",), False, "NEVER", None, "none")
    named = answer(setup("sm90", attention_backend="ROCM_OCTAVE", vllm="0.32.0"))
    assert named.chosen is None
    assert named.candidates[-1].invalid == ("ROCM_OCTAVE is no backend of this vLLM",)


@pytest.mark.parametrize(
    ("version", "table"),
    [
        ("0.33.0", "0.33.0"),
        ("0.33.0+cpu", "0.33.0"),
        ("0.33.1", "0.33.0"),
        ("0.34.0rc1", "0.33.0"),
        ("1.0", "0.33.0"),
        ("0.32.0", "0.32.0"),
        ("0.32.1.dev3", "0.32.0"),
        ("0.30.0", "0.32.0"),
        ("nonsense", "0.32.0"),
    ],
)
def test_which_table_stands_for_a_version(version: str, table: str) -> None:
    assert nearest(version) == table


@pytest.mark.parametrize("version", VERSIONS)
def test_every_answer_names_a_line_of_that_versions_source(version: str) -> None:
    text = files("vllm_av.preflight.backends").joinpath("lines", f"{version}.json").read_text()
    assert set(json.loads(text)) == places(version)
    for on in ("sm80", "sm100", "gfx942", "cpu"):
        for kind in LayerKind:
            if kind in (LayerKind.INDEXER, LayerKind.OTHER):
                continue
            for each in answer(setup(on, vllm=version), group(kind)).candidates:
                assert re.fullmatch(r"[a-z0-9_]+\.py:\d+", each.source), each


def test_the_versions_differ_in_what_they_have() -> None:
    new = set(rows("0.33.0")) - set(rows("0.32.0"))
    assert set(rows("0.32.0")) < set(rows("0.33.0"))
    assert {"FLASH_ATTN_MLA_SPARSE_FA4", "ROCM_OCTAVE", "STEP5_DSA"} <= new
