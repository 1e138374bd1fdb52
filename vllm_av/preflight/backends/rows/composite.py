"""Triton for image tokens and another backend for the rest, in one (``composite.py``).

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from dataclasses import replace

from vllm_av.preflight.backends.kernels import fa_version
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import FP8_CACHES, Row
from vllm_av.preflight.backends.rows.flash import fa_blocks, fa_cache, fa_combination, fa_head
from vllm_av.preflight.backends.rows.flashinfer import fi_combination
from vllm_av.preflight.capabilities import SINGLE


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0."""
    at = "composite.py:create_composite_attention_backend"
    lens_at = f"{at}.CompositeAttentionBackend.supports_device_cpu_query_lens_mismatch"
    graphs_at = f"{at}.CompositeAttentionMetadataBuilder.get_cudagraph_support"

    def hopper(query: Query) -> str | None:
        reason = fa_combination(replace(query, mm_prefix=False))
        if reason is None and not query.on("xpu") and fa_version(query) not in (3, 4):
            reason = "causal route requires FlashAttention v3 or v4"
        return f"FLASH_ATTN: {reason}" if reason else None

    def blackwell(query: Query) -> str | None:
        reason = fi_combination(query)
        return f"FLASHINFER: {reason}" if reason else None

    return (
        Row(
            "TRITON_FLASH_ATTN",
            at="triton_flash_attn.py:_FABackend",
            graphs_at=graphs_at,
            caches=fa_cache,
            heads=lambda query: query.head_size in (256, 512) and fa_head(query, old),
            blocks=fa_blocks,
            gpus=lambda query: query.on("cuda", 9) or (query.on("xpu") and not old),
            mm_prefix=True,
            sliding=True,
            rswa=True,
            combination=hopper,
            lens=False,
            lens_at=lens_at,
            graphs=SINGLE,
        ),
        Row(
            "TRITON_FLASHINFER",
            at="triton_flashinfer.py:TritonFlashInferBackend",
            graphs_at=graphs_at,
            caches=lambda query: query.kv_cache_dtype in FP8_CACHES,
            heads=(256, 512),
            blocks=(64,),
            gpus=lambda query: query.on("cuda", 10),
            mm_prefix=True,
            sliding=True,
            combination=blackwell,
            lens=False,
            lens_at=lens_at,
            graphs=SINGLE,
        ),
    )
