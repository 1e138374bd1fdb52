"""FlashAttention.

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from dataclasses import replace

from vllm_av.preflight.backends.kernels import (
    fa_default,
    fa_graphs,
    fa_page_version,
    fa_supported,
    fa_takes_fp8,
    fa_version,
    quantized,
)
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import FP8_CACHE, Bar, Row


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0."""
    flash = Row(
        "FLASH_ATTN",
        at="flash_attn.py:FlashAttentionBackend",
        graphs_at="flash_attn.py:FlashAttentionMetadataBuilder._cudagraph_support",
        caches=fa_cache,
        heads=lambda query: fa_head(query, old),
        blocks=fa_blocks,
        gpus=lambda query: query.on("xpu") or query.capability >= (8, 0),
        sink=lambda query: query.on("xpu") or fa_default(query) in (3, 4),
        mm_prefix=lambda query: fa_supported(query, 4),
        sliding=True,
        rswa=True,
        non_causal=True,
        batch_invariant=True,
        dcp=True,
        combination=fa_combination,
        graphs=fa_graphs,
        note=lambda query: f"FA{fa_default(query)}",
        bars=_BARS,
    )
    return (
        flash,
        replace(
            flash,
            name="FLASH_ATTN_DIFFKV",
            at="flash_attn_diffkv.py:FlashAttentionDiffKVBackend",
        ),
    )


_BARS = (
    Bar(
        # with ALiBi FA2 takes the place of FA3 and FA4
        lambda query: query.alibi and quantized(query) and not query.on("xpu"),
        "FlashAttention does not support fp8",
        "flash_attn.py:FlashAttentionImpl.__init__",
    ),
    Bar(
        # and of FA3 its builder asks for splits, for full graphs
        lambda query: query.alibi and fa_default(query) == 3 and not query.batch_invariant,
        "FA2 does not support num_splits > 1",
        "flash_attn_interface.py:flash_attn_varlen_func",
    ),
)


def fa_cache(query: Query) -> bool:
    """Whether it takes that cache."""
    cache = query.kv_cache_dtype
    if cache not in FP8_CACHE:
        return False
    return not quantized(query) or fa_takes_fp8(query, None)


def fa_head(query: Query, old: bool) -> bool:
    """Whether it takes heads of that size."""
    if query.head_size % 8:
        return False
    if query.head_size <= 256:
        return True
    large = fa_supported(query, 4) or (query.on("xpu") and not old)
    return large and query.head_size <= 512


def fa_blocks(query: Query) -> tuple[int, ...]:
    """Of what a block must be a multiple."""
    if query.on("xpu"):
        return (64,)
    fa4 = fa_page_version(query) == 4
    fp8 = query.kv_cache_dtype in ("fp8", "fp8_e4m3")
    if query.on("cuda", 9) and fp8 and query.head_size == 512 and fa4:
        return (64,)
    return (128,) if query.on("cuda", 10, 11) and query.head_size == 256 and fa4 else (16,)


def fa_combination(query: Query) -> str | None:
    """Why not all of it at once."""
    cached = quantized(query)
    if query.sink and query.capability < (9, 0) and not query.on("xpu"):
        return "sink not supported on compute capability < 9.0"
    if query.mm_prefix and cached and query.capability == (9, 0):
        return "SM90 FP8 KV with mm_prefix requires Triton"
    if cached and not fa_takes_fp8(query, query.head_size):
        return "FP8 KV cache requires FA3 on SM90, FA4 with head_size=512 on SM90, or FA4 on SM100"
    if query.mm_prefix and fa_version(query) != 4:
        return (
            "mm_prefix (PrefixLM bidirectional attention) requires FlashAttention v4, which does "
            "not resolve for this head_size"
        )
    return None
