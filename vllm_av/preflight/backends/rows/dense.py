"""Backends of plain attention on NVIDIA's GPUs, and the Triton and Flex ones that run anywhere.

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from dataclasses import replace

from vllm_av.preflight.backends.kernels import (
    TRTLLM_GEN,
    can_use_trtllm,
    fa_default,
    fa_graphs,
    fa_page_version,
    fa_supported,
    fa_takes_fp8,
    fa_version,
    flashinfer_kernel,
    quantized,
    trtllm,
)
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import ANY, FP8_CACHE, FP8_CACHES, Row
from vllm_av.preflight.capabilities import ALWAYS, NEVER, SINGLE, UNIFORM_BATCH


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0."""
    flash = Row(
        "FLASH_ATTN",
        at="flash_attn.py:FlashAttentionBackend",
        graphs_at="flash_attn.py:FlashAttentionMetadataBuilder._cudagraph_support",
        caches=_fa_cache,
        heads=lambda query: _fa_head(query, old),
        blocks=_fa_blocks,
        gpus=lambda query: query.on("xpu") or query.capability >= (8, 0),
        sink=lambda query: query.on("xpu") or fa_default(query) in (3, 4),
        mm_prefix=lambda query: fa_supported(query, 4),
        sliding=True,
        rswa=True,
        non_causal=True,
        batch_invariant=True,
        dcp=True,
        combination=_fa_combination,
        graphs=fa_graphs,
        note=lambda query: f"FA{fa_default(query)}",
    )
    triton = Row(
        "TRITON_ATTN",
        at="triton_attn.py:TritonAttentionBackend",
        graphs_at="triton_attn.py:TritonAttentionMetadataBuilder._cudagraph_support",
        dtypes=ANY,
        caches=(*FP8_CACHES, "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"),
        heads=lambda query: query.head_size >= 32,
        blocks=(16,),
        sink=True,
        mm_prefix=True,
        sliding=True,
        rswa=True,
        non_causal=True,
        batch_invariant=True,
        graphs=ALWAYS,
    )
    flashinfer = Row(
        "FLASHINFER",
        at="flashinfer.py:FlashInferBackend",
        graphs_at="flashinfer.py:FlashInferMetadataBuilder.get_cudagraph_support",
        caches=_fi_cache,
        heads=(64, 128, 256, 512),
        blocks=_fi_blocks,
        gpus=lambda query: (8, 0) <= query.capability <= (12, 1),
        sink=_fi_sink,
        sliding=True,
        non_causal=True,
        dcp=True,
        combination=_fi_combination,
        lens=lambda query: query.on("cuda", 10) and query.dcp == 1 and can_use_trtllm(query),
        lens_at="flashinfer.py:FlashInferBackend.supports_device_cpu_query_lens_mismatch",
        graphs=lambda query: _fi_graphs(query, old),
        bound=lambda query: _fi_bound(query, old),
        bound_at="flashinfer.py:FlashInferMetadataBuilder.get_varlen_cudagraph_max_query_len",
        note=flashinfer_kernel,
    )
    return (
        flash,
        triton,
        flashinfer,
        replace(
            flash,
            name="FLASH_ATTN_DIFFKV",
            at="flash_attn_diffkv.py:FlashAttentionDiffKVBackend",
        ),
        replace(
            triton,
            name="TRITON_ATTN_DIFFKV",
            at="triton_attn_diffkv.py:TritonAttentionDiffKVBackend",
            caches=("auto", "bfloat16", "fp8", "fp8_e4m3"),
        ),
        *_composites(old),
        *_others(old),
    )


def _fa_cache(query: Query) -> bool:
    cache = query.kv_cache_dtype
    if cache not in FP8_CACHE:
        return False
    return not quantized(query) or fa_takes_fp8(query, None)


def _fa_head(query: Query, old: bool) -> bool:
    if query.head_size % 8:
        return False
    if query.head_size <= 256:
        return True
    large = fa_supported(query, 4) or (query.on("xpu") and not old)
    return large and query.head_size <= 512


def _fa_blocks(query: Query) -> tuple[int, ...]:
    if query.on("xpu"):
        return (64,)
    fa4 = fa_page_version(query) == 4
    fp8 = query.kv_cache_dtype in ("fp8", "fp8_e4m3")
    if query.on("cuda", 9) and fp8 and query.head_size == 512 and fa4:
        return (64,)
    return (128,) if query.on("cuda", 10, 11) and query.head_size == 256 and fa4 else (16,)


def _fa_combination(query: Query) -> str | None:
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


def _fi_cache(query: Query) -> bool:
    cache = query.kv_cache_dtype
    if not cache.startswith("nvfp4"):
        return cache in FP8_CACHES
    if query.on("cuda", 8, 9, 12):  # written and read by fa2
        return cache == "nvfp4"
    return query.on("cuda", 10) and trtllm(query)


def _fi_blocks(query: Query) -> tuple[int, ...]:
    grouped = query.num_heads // query.num_kv_heads > 1
    large = grouped and query.on("cuda", 10) and can_use_trtllm(query)
    return (16, 32, 64, 128, 256, 512, 1024) if large else (16, 32, 64)


def _fi_sink(query: Query) -> bool:
    return query.trtllm is not False and trtllm(query)


def _fi_combination(query: Query) -> str | None:
    if not query.kv_cache_dtype.startswith("nvfp4") or query.gpu.major not in (8, 9, 12):
        return None
    if query.head_size == 64:
        return "fa2 prefill misreads an NVFP4 KV cache at head_size 64"
    return "the sink prefill wrapper cannot read an NVFP4 KV cache" if query.sink else None


def _fi_graphs(query: Query, old: bool) -> str:
    if query.dcp > 1:
        return SINGLE
    if not old and query.capability < (9, 0):
        return SINGLE if query.non_causal else UNIFORM_BATCH
    xqa = query.capability == (9, 0) or query.on("cuda", 12)
    takes_head = 16 <= query.head_size <= 256 and query.head_size % 16 == 0
    nvfp4 = query.kv_cache_dtype in ("nvfp4", "nvfp4_4over6") and not query.on("cuda", 12)
    if not can_use_trtllm(query) or (xqa and (nvfp4 or not takes_head)):
        return SINGLE
    return UNIFORM_BATCH if xqa or not query.non_causal else SINGLE


def _fi_bound(query: Query, old: bool) -> int | None:
    gen = flashinfer_kernel(query) == TRTLLM_GEN and query.dcp == 1
    return query.max_query_len if gen and _fi_graphs(query, old) == UNIFORM_BATCH else None


def _composites(old: bool) -> tuple[Row, ...]:
    """Triton for image tokens and another backend for the rest, in one (``composite.py``)."""
    at = "composite.py:create_composite_attention_backend"
    lens_at = f"{at}.CompositeAttentionBackend.supports_device_cpu_query_lens_mismatch"
    graphs_at = f"{at}.CompositeAttentionMetadataBuilder.get_cudagraph_support"

    def hopper(query: Query) -> str | None:
        reason = _fa_combination(replace(query, mm_prefix=False))
        if reason is None and not query.on("xpu") and fa_version(query) not in (3, 4):
            reason = "causal route requires FlashAttention v3 or v4"
        return f"FLASH_ATTN: {reason}" if reason else None

    def blackwell(query: Query) -> str | None:
        reason = _fi_combination(query)
        return f"FLASHINFER: {reason}" if reason else None

    return (
        Row(
            "TRITON_FLASH_ATTN",
            at="triton_flash_attn.py:_FABackend",
            graphs_at=graphs_at,
            caches=_fa_cache,
            heads=lambda query: query.head_size in (256, 512) and _fa_head(query, old),
            blocks=_fa_blocks,
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


def _b12x(query: Query) -> str | None:
    cache = query.kv_cache_dtype
    if query.dtype != "bfloat16":
        return "b12x currently requires bfloat16 queries"
    if cache == "float16":
        return "b12x does not support float16 KV cache"
    if quantized(query) and cache not in ("fp8", "fp8_e4m3"):
        return "b12x currently supports only fp8/fp8_e4m3 quantized KV cache dtypes"
    if "b12x" not in query.packages:
        return "Install the b12x backend with `pip install vllm[b12x]`"
    return None


def _others(old: bool) -> tuple[Row, ...]:
    return (
        Row(
            "FLEX_ATTENTION",
            at="flex_attention.py:FlexAttentionBackend",
            graphs_at="flex_attention.py:FlexAttentionMetadataBuilder._cudagraph_support",
            dtypes=ANY,
            blocks=(16,),
            mm_prefix=True,
            sliding=True,
            rswa=True,
            non_causal=True,
            batch_invariant=True,
            graphs=ALWAYS,
        ),
        Row(
            "B12X",
            at="b12x.py:B12xPagedAttentionBackend",
            graphs_at="b12x.py:B12xPagedMetadataBuilder._cudagraph_support",
            dtypes=("bfloat16",),
            caches=("auto", "bfloat16", "fp8", "fp8_e4m3"),
            heads=(64, 128, 192, 256),
            blocks=(64, 128),
            exact_blocks=True,
            gpus=lambda query: query.capability in ((12, 0), (12, 1)),
            sink=True,
            sliding=True,
            combination=_b12x,
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "HPC_ATTN",
            at="hpc_attn.py:HpcAttentionBackend",
            graphs_at="hpc_attn.py:HpcAttnMetadataBuilder.get_cudagraph_support",
            caches=("auto", "bfloat16", "fp8_e4m3"),
            heads=(128,),
            blocks=(64,),
            gpus=lambda query: query.capability == (9, 0),
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "TURBOQUANT",
            at="turboquant_attn.py:TurboQuantAttentionBackend",
            graphs_at="turboquant_attn.py:TurboQuantMetadataBuilder._cudagraph_support",
            caches=lambda query: query.kv_cache_dtype.startswith("turboquant_"),
            blocks=(16, 32, 64, 128),
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "ULTRAQUANT",
            at="ultraquant_attn.py:UltraQuantAttentionBackend",
            graphs_at="turboquant_attn.py:TurboQuantMetadataBuilder._cudagraph_support",
            dtypes=("bfloat16",),
            caches=("ultraquant_4bit",),
            blocks=(16, 32, 64, 128),
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "CPU_ATTN",
            at="cpu_attn.py:CPUAttentionBackend",
            graphs_at="backend.py:AttentionMetadataBuilder._cudagraph_support",
            dtypes=ANY,
            caches=("auto", *FP8_CACHES[3:]) if old else FP8_CACHES,
            heads=(32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512),
            blocks=(32,),
            sliding=True,
            non_causal=True,
            graphs=NEVER,
        ),
    )
