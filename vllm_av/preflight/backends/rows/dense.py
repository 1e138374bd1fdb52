"""Backends of plain attention that run anywhere, and the smaller ones of NVIDIA and the CPU.

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from dataclasses import replace

from vllm_av.preflight.backends.kernels import quantized
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import ANY, FP8_CACHES, Row
from vllm_av.preflight.backends.rows.bars import B12X, CPU, FLEX, HPC, TRITON
from vllm_av.preflight.capabilities import ALWAYS, NEVER, UNIFORM_BATCH


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0."""
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
        alibi_sqrt=True,
        bars=TRITON,
    )
    return (
        triton,
        replace(
            triton,
            name="TRITON_ATTN_DIFFKV",
            at="triton_attn_diffkv.py:TritonAttentionDiffKVBackend",
            caches=("auto", "bfloat16", "fp8", "fp8_e4m3"),
        ),
        *_others(old),
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
            bars=FLEX,
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
            bars=B12X,
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
            bars=HPC,
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
            bars=CPU,
        ),
    )
