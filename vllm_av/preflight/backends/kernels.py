"""What vLLM's backends ask about the kernels under them: FlashAttention's version, FlashInfer's
decode kernel, FlashMLA, DeepGEMM.

The functions follow vLLM's of the same purpose (``fa_utils.py``, ``utils/flashinfer.py``). What
they take for granted is what the wheel of vLLM and ``flashinfer-python`` bring: FlashAttention 2,
3 and 4, FlashMLA and DeepGEMM are compiled in, and FlashInfer's kernels can be had.

Rule: no backend's row looks at a GPU in another way.
"""

from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.capabilities import ALWAYS, UNIFORM_BATCH

TRTLLM_GEN, XQA, FA2 = "trtllm-gen", "XQA", "fa2"
"""FlashInfer's decode kernels."""


def quantized(cache: str) -> bool:
    """``is_quantized_kv_cache``."""
    packed = ("fp8", "nvfp4", "turboquant_", "octave_", "ultraquant_")
    return cache.startswith(packed) or cache.endswith("per_token_head")


def fa_supported(query: Query, version: int) -> bool:
    """``is_fa_version_supported``."""
    if version == 2:
        return query.on("cuda") and query.capability >= (8, 0)
    return query.on("cuda", 9) if version == 3 else query.on("cuda", 9, 10, 11)


def fa_default(query: Query) -> int | None:
    """The version that vLLM takes when it is told nothing of a layer; None where it has none."""
    return _version(query, head_size=None)


def fa_graphs(query: Query, old: bool) -> str:
    """``FlashAttentionMetadataBuilder._cudagraph_support``; 0.32.0 had no such graphs with FA4."""
    always = fa_default(query) in ((3,) if old else (3, 4)) or (query.on("xpu") and not old)
    return ALWAYS if always else UNIFORM_BATCH


def fa_version(query: Query) -> int | None:
    """The version for these layers (``get_flash_attn_version``)."""
    return _version(query, head_size=query.head_size)


def _version(query: Query, head_size: int | None) -> int | None:
    if not query.on("cuda"):
        return 2 if query.on("xpu") else None
    major = query.gpu.major
    version = 2
    if major == 9:
        version = 3
    elif major == 10:
        version = 4
    version = query.flash_attn_version or version
    if major >= 10 and version == 3:
        version = 4 if fa_supported(query, 4) else 2
    if version == 3 and major == 9 and head_size is not None and head_size > 256:
        version = 4
    if query.batch_invariant and version == 4:
        version = 2
    if version == 4 and major in (10, 11) and head_size == 256 and _hd256_falls_back(query):
        version = 2
    tmem = head_size is not None and head_size > 128 and head_size != 256
    if version == 4 and major >= 10 and tmem:
        version = 2
    return version if fa_supported(query, version) else None


def _hd256_falls_back(query: Query) -> bool:
    """``_fa4_hd256_fallback_reason``: FA4's kernel for heads of 256 on Blackwell."""
    block = query.block_size
    return bool(
        query.sink
        or query.text_config.get("attn_logit_softcapping")
        or quantized(query.kv_cache_dtype)
        or (block is not None and block % 128)
        or query.mm_prefix
        or query.rswa
        or query.dcp > 1
    )


def fa_takes_fp8(query: Query, head_size: int | None) -> bool:
    """``flash_attn_supports_kv_cache_dtype``, of a layer or, with None, at large."""
    if query.kv_cache_dtype == "fp8_e5m2":
        return False
    if query.on("xpu"):
        return True
    version = _version(query, head_size)
    if query.on("cuda", 9):
        return version == 3 or (version == 4 and head_size in (None, 512))
    return version == 4 and query.on("cuda", 10)


def trtllm(query: Query, prefill: bool = False) -> bool:
    """``supports_trtllm_attention``: trtllm-gen on 10.x, XQA's decode on 9.0 and 12.x."""
    if query.batch_invariant or not query.flashinfer:
        return False
    if query.capability == (9, 0) or query.on("cuda", 12):
        return query.on("cuda") and not prefill
    return query.on("cuda", 10)


def can_use_trtllm(query: Query) -> bool:
    """``can_use_trtllm_attention`` for decode."""
    return query.trtllm is not False and trtllm(query) and query.num_heads % query.num_kv_heads == 0


def flashinfer_kernel(query: Query) -> str:
    """Which kernel decodes."""
    if not can_use_trtllm(query):
        return FA2
    return TRTLLM_GEN if query.on("cuda", 10) else XQA


def deep_gemm(query: Query) -> bool:
    """``has_deep_gemm``: the wheel for CUDA brings it."""
    return query.on("cuda")
