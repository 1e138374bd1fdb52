"""What a backend's code refuses though vLLM's selector takes it."""

from typing import Any

import pytest

from tests.unit.preflight.backends.setups import group, setup
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.capabilities import NEVER, Candidate
from vllm_av.preflight.facts import LayerKind


def of(name: str, on: str, cache: str = "auto", vllm: str = "0.33.0", **layers: Any) -> Candidate:
    """The backend's own answer, named by the user."""
    asked = setup(on, vllm=vllm, attention_backend=name, kv_cache_dtype=cache)
    found = TableCapabilities(vllm).answer(asked, group(**layers))
    return next(each for each in found.candidates if each.name == name)


@pytest.mark.parametrize("vllm", ["0.32.0", "0.33.0"])
@pytest.mark.parametrize(
    ("on", "cache", "why"),
    [
        ("sm75", "auto", []),
        ("sm75", "bfloat16", ["bfloat16 requires SM80+"]),
        ("sm75", "fp8", ["native FP8 (fp8e4nv) requires SM89+"]),
        ("sm80", "bfloat16", []),
        ("sm86", "fp8_e5m2", ["native FP8 (fp8e4nv) requires SM89+"]),
        ("sm80", "fp8_per_token_head", ["native FP8 (fp8e4nv) requires SM89+"]),
        ("sm80", "int8_per_token_head", []),
        ("sm89", "fp8", []),
        ("sm90", "fp8", []),
        ("gfx90a", "fp8", []),
    ],
)
def test_what_triton_reads_only_on_newer_gpus(
    on: str, cache: str, why: list[str], vllm: str
) -> None:
    found = of("TRITON_ATTN", on, cache, vllm)
    assert [each.why for each in found.limits] == why
    assert not found.invalid
    assert found.promises(8)
    assert found.suffices(8) is (why == [])
    assert all(each.source.startswith("triton_attn.py:") for each in found.limits)


@pytest.mark.parametrize(
    ("name", "on", "layers", "word"),
    [
        ("FLEX_ATTENTION", "sm90", {"soft_cap": True}, "soft cap"),
        ("FLEX_ATTENTION", "sm90", {"alibi": True}, "alibi"),
        ("FLEX_ATTENTION", "gfx942", {"shared_kv": True}, "kv sharing"),
        ("FLASH_ATTN", "sm90", {"alibi": True}, "num_splits"),
        ("FLASH_ATTN", "sm100", {"alibi_sqrt": True}, "use_alibi_sqrt"),
        ("ROCM_SEGMENTED_ATTN", "gfx1100", {"alibi": True}, "ALiBi"),
        ("ROCM_SEGMENTED_ATTN", "gfx1100", {"num_heads": 64, "num_kv_heads": 2}, "GQA ratio"),
    ],
)
def test_layers_that_a_constructor_refuses(
    name: str, on: str, layers: dict[str, Any], word: str
) -> None:
    found = of(name, on, **layers)
    assert [word in each.why for each in found.limits] == [True]
    assert found.promises(8)
    assert not found.suffices(8)
    assert of(name, on).limits == ()


@pytest.mark.parametrize("extra", ["soft_cap", "alibi", "alibi_sqrt", "shared_kv"])
def test_triton_takes_all_of_it(extra: str) -> None:
    assert of("TRITON_ATTN", "sm80", **{extra: True}).suffices(8)


def test_the_selector_knows_no_limit() -> None:
    asked = setup("sm80", patched=True, kv_cache_dtype="fp8")
    found = TableCapabilities("0.33.0").answer(asked, group())
    assert found.chosen is not None
    assert found.chosen.name == "TRITON_ATTN"
    assert found.first_that_suffices(8) is None


def test_a_wrapper_has_no_bound_either() -> None:
    found = TableCapabilities("0.33.0").answer(setup("sm100"), group(LayerKind.CHUNKED))
    assert {(each.graphs, each.bound) for each in found.candidates} == {(NEVER, None)}


def test_an_fp8_cache_on_the_cpu() -> None:
    assert of("CPU_ATTN", "cpu", "fp8", head_size=80).limits
    assert not of("CPU_ATTN", "cpu", "fp8", head_size=128).limits
    assert not of("CPU_ATTN", "cpu", head_size=80).limits
