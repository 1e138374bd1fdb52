"""The names that vLLM's parser takes: of attention backends, and of types of the KV cache.

Rule: vLLM's own lists, version by version, held against its source by a test; whether this package
knows what a name stands for is another question. Of another version no name is known to be wrong.
"""

from vllm_av.preflight.backends.versions import VERSIONS, is_old

_BACKENDS = """
    AMX_MLA B12X CPU_ATTN CPU_MLA CUSTOM CUTLASS_MLA CUTLASS_MSA FLASHINFER FLASHINFER_MLA
    FLASHINFER_MLA_SPARSE FLASHINFER_MLA_SPARSE_DSV4 FLASHINFER_MLA_SPARSE_DSV41
    FLASHINFER_MLA_SPARSE_SM120 FLASHINFER_MLA_SPARSE_SM90 FLASHMLA FLASHMLA_MEGA_ATTN_DSV41
    FLASHMLA_SPARSE FLASHMLA_SPARSE_DSV4 FLASHMLA_SPARSE_DSV41 FLASH_ATTN FLASH_ATTN_DIFFKV
    FLASH_ATTN_MLA FLASH_ATTN_MLA_SPARSE FLEX_ATTENTION HPC_ATTN MINIMAX_M3_SPARSE
    NO_ATTENTION ROCM_AITER_FA ROCM_AITER_MLA ROCM_AITER_MLA_SPARSE ROCM_AITER_TRITON_MLA
    ROCM_AITER_UNIFIED_ATTN ROCM_ATTN ROCM_FLASHMLA_SPARSE_DSV4 ROCM_SEGMENTED_ATTN
    TOKENSPEED_MLA TORCH_SDPA TRITON_ATTN TRITON_ATTN_DIFFKV TRITON_FLASHINFER
    TRITON_FLASH_ATTN TRITON_MLA TRITON_MSA TURBOQUANT ULTRAQUANT XPU_MLA_SPARSE
"""
_NEW_BACKENDS = """
    FLASH_ATTN_MLA_SPARSE_FA4 ROCM_FLASHMLA_SPARSE_DSV41 ROCM_OCTAVE STEP5_DSA
"""
_CACHES = """
    auto bfloat16 float16 fp8 fp8_ds_mla fp8_e4m3 fp8_e5m2 fp8_inc fp8_per_token_head
    int4_per_token_head int8_per_token_head nvfp4 nvfp4_4over6 nvfp4_ds_mla
    turboquant_3bit_nc turboquant_4bit_nc turboquant_k3v4_nc turboquant_k8v4 ultraquant_4bit
"""
_NEW_CACHES = "octave_k3v3 octave_k3v3_compact octave_k3v4"


def backends(version: str) -> tuple[str, ...]:
    """``AttentionBackendEnum``; empty for a version that is not known."""
    return _of(version, _BACKENDS, _NEW_BACKENDS)


def cache_types(version: str) -> tuple[str, ...]:
    """``CacheDType``; empty for a version that is not known."""
    return _of(version, _CACHES, _NEW_CACHES)


def _of(version: str, always: str, new: str) -> tuple[str, ...]:
    if version not in VERSIONS:
        return ()
    return tuple(always.split()) if is_old(version) else (*always.split(), *new.split())
