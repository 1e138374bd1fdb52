"""In which order vLLM's platforms try backends (``platforms/cuda.py``, ``rocm.py``, ``xpu.py``,
``cpu.py``).

Rule: the lists are vLLM's own; nothing is preferred here.
"""

from vllm_av.preflight.backends.kernels import quantized
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.rows.rocm import cdna, rdna4


def priorities(query: Query) -> list[str]:
    """What the selector tries for these layers when the user names no backend."""
    if query.on("cuda"):
        return _mla(query) if query.mla else _dense(query)
    if query.on("rocm"):
        return _rocm(query)
    return _xpu(query) if query.on("xpu") else _cpu(query)


def _mla(query: Query) -> list[str]:
    if query.gpu.major == 10:
        dense = ["FLASHINFER_MLA", "TOKENSPEED_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA"]
        sparse = ["FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"]
        if not quantized(query):
            if query.num_heads > 16:  # FlashMLA pads small head counts
                sparse.reverse()
            elif not query.old:
                sparse.insert(0, "FLASH_ATTN_MLA_SPARSE_FA4")
        return [*dense, "TRITON_MLA", *sparse]
    if query.gpu.major == 12:
        return ["TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120"]
    tail = ["FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE"]
    tail.insert(0 if query.head_size == 512 else 2, "FLASHINFER_MLA_SPARSE_SM90")
    return ["FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", *tail]


def _dense(query: Query) -> list[str]:
    tail = ["TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"]
    if query.gpu.major == 10 and not query.non_causal:
        first = ["TRITON_FLASHINFER"] if query.mm_prefix else []
        return [*first, "FLASHINFER", "FLASH_ATTN", *tail]
    first = ["TRITON_FLASH_ATTN"] if query.gpu.major == 9 and query.mm_prefix else []
    return [*first, "FLASH_ATTN", "FLASHINFER", *tail]


def _rocm(query: Query) -> list[str]:
    # AITER comes with vLLM's images for CDNA 3 and newer, and is off unless it is switched on.
    library = cdna(query) > 2
    on = library and "master" in query.aiter
    if query.sparse:
        return ["ROCM_AITER_MLA_SPARSE"]
    if query.mla:
        aiter = on and "mla" in query.aiter
        return (
            ["ROCM_AITER_MLA", "TRITON_MLA", "ROCM_AITER_TRITON_MLA"] if aiter else ["TRITON_MLA"]
        )
    found = [] if query.kv_connector else ["ROCM_ATTN"]
    if on and "mha" in query.aiter:
        found.append("ROCM_AITER_FA")
    if library:
        found.append("ROCM_AITER_UNIFIED_ATTN")
    elif rdna4(query) and "master" in query.aiter:
        found.insert(0, "ROCM_AITER_UNIFIED_ATTN")
    octave = [] if query.old else ["ROCM_OCTAVE"]
    return [*found, "TRITON_ATTN", "TURBOQUANT", *octave, "ULTRAQUANT"]


def _xpu(query: Query) -> list[str]:
    # no list: the selector is a chain of conditions (selector.py), over these
    if query.kv_cache_dtype.startswith("turboquant_"):
        return ["TURBOQUANT"]
    if query.sparse:
        return ["XPU_MLA_SPARSE"]
    if query.mla:
        return ["XPU_FLASH_ATTN_MLA", "TRITON_MLA"]
    first = ["TRITON_FLASH_ATTN"] if query.mm_prefix else []
    return [*first, "FLASH_ATTN", "TRITON_ATTN"]


def _cpu(query: Query) -> list[str]:
    if query.sparse:
        return []
    return ["CPU_MLA"] if query.mla else ["CPU_ATTN"]
