"""Which backend can do it: one case a verdict, from reading vLLM's source, by backend, GPU, K, DCP.

Each backend is named by the user, or by the model, so that the selector's order has no say.
"""

from dataclasses import replace

import pytest

from tests.unit.preflight.backends.setups import group, setup
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.capabilities import Candidate
from vllm_av.preflight.facts import LayerKind, Setup

DENSE, MLA, SPARSE = LayerKind.FULL, LayerKind.MLA, LayerKind.MLA_SPARSE


def of(name: str, asked: Setup, kind: LayerKind) -> Candidate:
    """The backend's own answer."""
    answer = TableCapabilities(asked.vllm).answer(asked, group(kind))
    return next(each for each in answer.candidates if each.name == name)


YES, NO = True, False
CASES = [
    # FLASH_ATTN: FA3 and FA4 yes, FA2 no
    ("FLASH_ATTN", DENSE, "sm80", NO, "FA2"),
    ("FLASH_ATTN", DENSE, "sm86", NO, "FA2"),
    ("FLASH_ATTN", DENSE, "sm89", NO, "FA2"),
    ("FLASH_ATTN", DENSE, "sm90", YES, "FA3"),
    ("FLASH_ATTN", DENSE, "sm100", YES, "FA4"),
    ("FLASH_ATTN", DENSE, "sm103", YES, "FA4"),
    ("FLASH_ATTN", DENSE, "sm120", NO, "FA2"),
    ("FLASH_ATTN", DENSE, "sm121", NO, "FA2"),
    # FLASHINFER: trtllm-gen only, which is the SM100 family
    ("FLASHINFER", DENSE, "sm80", NO, "fa2"),
    ("FLASHINFER", DENSE, "sm89", NO, "fa2"),
    ("FLASHINFER", DENSE, "sm90", NO, "XQA"),
    ("FLASHINFER", DENSE, "sm100", YES, "trtllm-gen"),
    ("FLASHINFER", DENSE, "sm103", YES, "trtllm-gen"),
    ("FLASHINFER", DENSE, "sm120", NO, "XQA"),
    ("FLASHINFER", DENSE, "sm121", NO, "XQA"),
    *(
        (name, DENSE, on, YES, "")
        for name in ("TRITON_ATTN", "FLEX_ATTENTION")
        for on in ("sm75", "sm80", "sm89", "sm90", "sm100", "sm120")
    ),
    ("B12X", DENSE, "sm120", NO, ""),
    ("HPC_ATTN", DENSE, "sm90", NO, ""),
    ("FLASHINFER_MLA", MLA, "sm100", YES, ""),
    ("FLASHINFER_MLA", MLA, "sm103", YES, ""),
    ("FLASH_ATTN_MLA", MLA, "sm90", NO, ""),
    ("FLASHMLA", MLA, "sm90", NO, ""),
    ("CUTLASS_MLA", MLA, "sm100", NO, ""),
    ("TOKENSPEED_MLA", MLA, "sm100", NO, ""),
    *(("TRITON_MLA", MLA, on, NO, "") for on in ("sm80", "sm90", "sm100", "sm120", "gfx942")),
    ("FLASHINFER_MLA_SPARSE", SPARSE, "sm100", YES, ""),
    ("FLASH_ATTN_MLA_SPARSE_FA4", SPARSE, "sm100", YES, ""),
    ("FLASHINFER_MLA_SPARSE_SM90", SPARSE, "sm90", NO, ""),
    ("FLASHINFER_MLA_SPARSE_SM120", SPARSE, "sm120", NO, ""),
    ("FLASH_ATTN_MLA_SPARSE", SPARSE, "sm90", NO, ""),
    *(("FLASHMLA_SPARSE", SPARSE, on, NO, "") for on in ("sm90", "sm100")),
    *(("ROCM_ATTN", DENSE, on, YES, "") for on in ("gfx90a", "gfx942", "gfx950", "gfx1100")),
    ("ROCM_AITER_UNIFIED_ATTN", DENSE, "gfx942", YES, ""),
    ("ROCM_SEGMENTED_ATTN", DENSE, "gfx1100", YES, ""),
    *(("ROCM_AITER_MLA", MLA, on, YES, "") for on in ("gfx942", "gfx950")),
    ("ROCM_AITER_TRITON_MLA", MLA, "gfx942", YES, ""),
    ("ROCM_AITER_FA", DENSE, "gfx942", NO, ""),
    ("ROCM_AITER_MLA_SPARSE", SPARSE, "gfx950", NO, ""),
    ("ROCM_OCTAVE", DENSE, "gfx942", NO, ""),
    ("CPU_ATTN", DENSE, "cpu", NO, ""),
    ("CPU_MLA", MLA, "cpu", NO, ""),
    ("XPU_MLA_SPARSE", SPARSE, "xpu", NO, ""),
]


@pytest.mark.parametrize("k", [1, 7, 15])
@pytest.mark.parametrize(("name", "kind", "on", "able", "note"), CASES)
def test_a_backend_on_a_gpu(
    name: str, kind: LayerKind, on: str, able: bool, note: str, k: int
) -> None:
    found = of(name, setup(on, k, attention_backend=name), kind)
    assert (found.lens and found.replays(k + 1)) is able
    assert found.note == note
    if able:
        assert found.suffices(k + 1)
        # the bound is K+1, whatever K is: a wider query it does not promise
        assert found.replays(k + 2) is (found.graphs == "ALWAYS")


@pytest.mark.parametrize("dcp", [1, 2, 8])
@pytest.mark.parametrize(
    ("name", "kind", "on", "able"),
    [
        ("FLASH_ATTN", DENSE, "sm90", YES),
        ("FLASH_ATTN", DENSE, "sm100", YES),
        ("FLASHINFER", DENSE, "sm100", "alone"),
        ("FLASHINFER", DENSE, "sm90", NO),
        ("FLASHINFER_MLA", MLA, "sm100", "alone"),
        ("FLASHINFER_MLA_SPARSE", SPARSE, "sm100", YES),
        ("TRITON_MLA", MLA, "sm90", NO),
        ("ROCM_AITER_MLA", MLA, "gfx942", "alone"),
    ],
)
def test_decode_context_parallelism(
    name: str, kind: LayerKind, on: str, able: bool | str, dcp: int
) -> None:
    asked = setup(on, attention_backend=name, decode_context_parallel_size=dcp)
    found = of(name, asked, kind)
    assert found.suffices(8) is (dcp == 1 if able == "alone" else able)


@pytest.mark.parametrize("name", ["TRITON_ATTN", "FLEX_ATTENTION"])
def test_triton_and_flex_have_no_decode_context_parallelism(name: str) -> None:
    asked = setup("sm90", attention_backend=name, decode_context_parallel_size=2)
    assert of(name, asked, DENSE).invalid == ("DCP not supported",)


MODELS = [
    # the indexer of sparse MLA: device lengths on SM90 (a row a query) and SM100
    *(
        ("DEEPSEEK_V32_INDEXER", "DeepseekV32ForCausalLM", on, on in ("sm90", "sm100", "sm103"))
        for on in ("sm80", "sm90", "sm100", "sm103", "sm120", "gfx942")
    ),
    *(
        (f"{name}_INDEXER", f"{model}ForCausalLM", on, on != "sm120")
        for name, model in (("DEEPSEEK_V4", "DeepseekV4"), ("DEEPSEEK_V41", "DeepseekV41"))
        for on in ("sm90", "sm100", "sm120", "gfx942", "gfx950")
    ),
    *(
        (name, "DeepseekV4ForCausalLM", on, YES)
        for name in ("DEEPSEEK_SPARSE_SWA", "DEEPSEEK_V4_SPARSE_MLA", "CompressorBackend")
        for on in ("sm90", "sm100", "gfx942")
    ),
    ("MINIMAX_M3_SPARSE", "MiniMaxM3", "sm100", NO),
    ("MINIMAX_M3_SPARSE_INDEXER", "MiniMaxM3", "sm100", NO),
    ("STEP5_DSA", "Step5", "sm100", NO),
    ("STEP5_FLASH_ATTN", "Step5", "sm90", YES),
    ("STEP5_CSA_SUMMARY", "Step5", "sm90", YES),
    ("QWEN4_EXP_QSA_TRITON", "Qwen4", "sm100", NO),
    ("KIMI_K3_KDA", "KimiK3", "sm90", YES),
    ("KIMI_K3_KDA", "KimiK3", "gfx950", YES),
    ("BAILING_LINEAR_ATTN", "BailingMoe", "sm90", NO),
    # MiMo V2 takes Triton's where there is no FlashAttention 3 or 4
    *(("FLASH_ATTN_DIFFKV", "MiMoV2", on, YES) for on in ("sm80", "sm90", "sm100", "sm120")),
]


@pytest.mark.parametrize(("name", "model", "on", "able"), MODELS)
def test_what_a_model_names_itself(name: str, model: str, on: str, able: bool) -> None:
    asked = setup(on)
    asked = replace(asked, target=replace(asked.target, architecture=model))
    found = TableCapabilities("0.33.0").answer(asked, group(LayerKind.OTHER, backend=name)).chosen
    assert found is not None
    assert found.suffices(8) is able


@pytest.mark.parametrize(
    ("kind", "replay", "able"),
    [
        (LayerKind.MAMBA1, False, NO),
        (LayerKind.MAMBA2, False, YES),
        (LayerKind.MAMBA2, True, NO),
        (LayerKind.SHORT_CONV, False, NO),
        (LayerKind.LINEAR, False, NO),
        (LayerKind.GDN, False, NO),
    ],
)
def test_layers_with_a_state(kind: LayerKind, replay: bool, able: bool) -> None:
    asked = setup("sm90", features={"use_replayssm": replay})
    layers = group(kind, head_size=0, num_heads=0, num_kv_heads=0)
    found = TableCapabilities("0.33.0").answer(asked, layers).chosen
    assert found is not None
    assert found.suffices(8) is able
    assert found.lens is able


def test_layers_that_attend_within_chunks_have_no_graphs_on_any_backend() -> None:
    for on in ("sm90", "sm100", "gfx942"):
        found = TableCapabilities("0.33.0").answer(setup(on), group(LayerKind.CHUNKED))
        assert {each.graphs for each in found.candidates} == {"NEVER"}
        assert found.first_that_suffices(2) is None


# What 0.32.0 had not: FA4's graphs, Mamba 2, AITER's MLA, V4.1 and Kimi K3 on ROCm.
NEW = [
    ("FLASH_ATTN", LayerKind.FULL, "sm100"),
    ("MAMBA2", LayerKind.MAMBA2, "sm90"),
    ("ROCM_AITER_MLA", LayerKind.MLA, "gfx942"),
    ("DEEPSEEK_V41_INDEXER", LayerKind.OTHER, "gfx942"),
    ("DEEPSEEK_V41_SPARSE_MLA", LayerKind.OTHER, "gfx942"),
    ("KIMI_K3_KDA", LayerKind.OTHER, "gfx942"),
]


@pytest.mark.parametrize(("name", "kind", "on"), NEW)
def test_what_the_newer_vllm_can_do_and_the_older_cannot(
    name: str, kind: LayerKind, on: str
) -> None:
    layers = group(kind, backend=name if kind is LayerKind.OTHER else None)
    able = []
    for version in ("0.33.0", "0.32.0"):
        asked = setup(on, vllm=version, attention_backend=name)
        answer = TableCapabilities(version).answer(asked, layers)
        found = next(each for each in answer.candidates if each.name == name)
        able.append(found.suffices(8))
    assert able == [True, False]
