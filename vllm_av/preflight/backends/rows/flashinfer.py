"""FlashInfer, but for MLA.

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from vllm_av.preflight.backends.kernels import (
    TRTLLM_GEN,
    can_use_trtllm,
    flashinfer_kernel,
    trtllm,
)
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import FP8_CACHES, Row
from vllm_av.preflight.capabilities import SINGLE, UNIFORM_BATCH


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0."""
    row = Row(
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
        combination=fi_combination,
        lens=lambda query: query.on("cuda", 10) and query.dcp == 1 and can_use_trtllm(query),
        lens_at="flashinfer.py:FlashInferBackend.supports_device_cpu_query_lens_mismatch",
        graphs=lambda query: _fi_graphs(query, old),
        bound=lambda query: _fi_bound(query, old),
        bound_at="flashinfer.py:FlashInferMetadataBuilder.get_varlen_cudagraph_max_query_len",
        note=flashinfer_kernel,
    )
    return (row,)


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


def fi_combination(query: Query) -> str | None:
    """Why not all of it at once."""
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
