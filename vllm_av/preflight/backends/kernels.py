"""What vLLM's backends ask about the kernels under them: FlashAttention's version, FlashInfer's
decode kernel, FlashMLA, DeepGEMM.

The functions follow vLLM's of the same purpose (``fa_utils.py``, ``utils/flashinfer.py``). What
they take for granted is what the wheel of vLLM and ``flashinfer-python`` bring: FlashAttention 2,
3 and 4, FlashMLA and DeepGEMM are compiled in, and FlashInfer's kernels can be had.

Rule: no backend's row looks at a GPU in another way.
"""

from dataclasses import replace

from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.capabilities import ALWAYS, UNIFORM_BATCH

TRTLLM_GEN, XQA, FA2 = "trtllm-gen", "XQA", "fa2"
"""FlashInfer's decode kernels."""


def quantized(query: Query) -> bool:
    """``is_quantized_kv_cache``."""
    packed = () if query.old else ("turboquant_", "octave_", "ultraquant_")
    cache = query.kv_cache_dtype
    return cache.startswith(("fp8", "nvfp4", *packed)) or cache.endswith("per_token_head")


def fa_supported(query: Query, version: int) -> bool:
    """``is_fa_version_supported``."""
    if version == 2:
        return query.on("cuda") and query.capability >= (8, 0)
    return query.on("cuda", 9) if version == 3 else query.on("cuda", 9, 10, 11)


def fa_default(query: Query) -> int | None:
    """The version that vLLM takes when it is told nothing of a layer; None where it has none."""
    return _version(replace(query, sink=False, block_size=None), None)


def fa_page_version(query: Query) -> int | None:
    """The same when it is told the size of a head, to find the size of a page."""
    return _version(replace(query, sink=False, block_size=None), query.head_size)


def fa_version(query: Query) -> int | None:
    """The version for these layers (``get_flash_attn_version``)."""
    return _version(query, query.head_size)


def fa_graphs(query: Query) -> str:
    """``FlashAttentionMetadataBuilder._cudagraph_support``; 0.32.0 had no such graphs with FA4."""
    versions = (3,) if query.old else (3, 4)
    always = fa_default(query) in versions or (query.on("xpu") and not query.old)
    return ALWAYS if always else UNIFORM_BATCH


def _version(query: Query, head_size: int | None) -> int | None:
    if not query.on("cuda"):
        return 2 if query.on("xpu") else None
    major = query.gpu.major
    version = query.flash_attn_version or {9: 3, 10: 4}.get(major, 2)
    if major >= 10 and version == 3:
        version = 4 if fa_supported(query, 4) else 2
    if version == 3 and major == 9 and head_size is not None and head_size > 256:
        version = 4
    if version == 4 and (query.batch_invariant or _falls_back(query, head_size)):
        version = 2
    return version if fa_supported(query, version) else None


def _falls_back(query: Query, head_size: int | None) -> bool:
    """Whether FA4 cannot take heads of that size on Blackwell: ``_fa4_hd256_fallback_reason`` for
    its kernel for 256, and no kernel for others above 128."""
    if query.gpu.major < 10 or head_size is None or head_size <= 128:
        return False
    if head_size != 256 or query.gpu.major > 11:
        return head_size != 256
    block = query.block_size
    return bool(
        query.sink
        or query.text_config.get("attn_logit_softcapping")
        or quantized(query)
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
