"""Which backend can do it: one case a verdict, from reading vLLM's source, by backend, GPU, K, DCP.

Each backend is named by the user, so that the selector's order has no say.
"""

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
