"""Backends of plain attention on AMD's GPUs.

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from vllm_av.preflight.backends.gpus import rocm_target
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import ANY, FP8_CACHE, FP8_CACHES, Row
from vllm_av.preflight.backends.rows.bars import SEGMENTED
from vllm_av.preflight.capabilities import ALWAYS, UNIFORM_BATCH

CDNA = {"gfx90a": 2, "gfx942": 3, "gfx950": 4, "gfx1250": 5}
"""``get_cdna_version`` (platforms/rocm.py)."""

_ALWAYS_AT = "rocm_attn.py:RocmAttentionMetadataBuilder._cudagraph_support"


def cdna(query: Query) -> int:
    """The version of the CDNA architecture, 0 for none."""
    return CDNA.get(rocm_target(query.gpu), 0) if query.on("rocm") else 0


def rdna(query: Query) -> bool:
    """``on_rdna``: gfx11 and gfx12 but for the one that counts as CDNA."""
    return query.on("rocm", 11, 12) and not cdna(query)


def rdna4(query: Query) -> bool:
    """``on_rdna4``."""
    return query.on("rocm") and rocm_target(query.gpu) in ("gfx1200", "gfx1201")


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0, which has no Octave."""
    octave = Row(
        "ROCM_OCTAVE",
        at="rocm_octave_attn.py:RocmOctaveAttentionBackend",
        graphs_at="rocm_octave_attn.py:RocmOctaveMetadataBuilder._cudagraph_support",
        caches=("octave_k3v4", "octave_k3v3", "octave_k3v3_compact"),
        heads=(256,),
        blocks=(16,),
        gpus=lambda query: cdna(query) == 3 or query.on("rocm", 11),
        graphs=UNIFORM_BATCH,
    )
    return (
        Row(
            "ROCM_ATTN",
            at="rocm_attn.py:RocmAttentionBackend",
            graphs_at=_ALWAYS_AT,
            dtypes=ANY,
            caches=FP8_CACHES,
            heads=(32, 64, 80, 96, 128, 160, 192, 224, 256),
            blocks=(16,),
            sliding=True,
            non_causal=True,
            kv_connector=False,
            graphs=ALWAYS,
        ),
        Row(
            "ROCM_SEGMENTED_ATTN",
            at="rocm_segmented_attn.py:RocmSegmentedAttentionBackend",
            graphs_at=_ALWAYS_AT,
            caches=FP8_CACHE,
            heads=(64, 128, 256),
            blocks=(16,),
            sink=True,
            sliding=True,
            non_causal=True,
            kv_connector=False,
            combination=_segmented,
            graphs=ALWAYS,
            bars=SEGMENTED,
        ),
        Row(
            "ROCM_AITER_UNIFIED_ATTN",
            at="rocm_aiter_unified_attn.py:RocmAiterUnifiedAttentionBackend",
            graphs_at=_ALWAYS_AT,
            caches=FP8_CACHES,
            heads=lambda query: query.head_size >= 32,
            blocks=(16,),
            sink=True,
            sliding=True,
            graphs=ALWAYS,
        ),
        Row(
            "ROCM_AITER_FA",
            at="rocm_aiter_fa.py:AiterFlashAttentionBackend",
            graphs_at="rocm_aiter_fa.py:AiterFlashAttentionMetadataBuilder._cudagraph_support",
            caches=FP8_CACHES,
            heads=(64, 128, 256),
            blocks=(16, 32),
            gpus=lambda query: cdna(query) > 2,
            sink=True,
            sliding=True,
            non_causal=True,
            graphs=UNIFORM_BATCH,
        ),
        *(() if old else (octave,)),
    )


def _segmented(query: Query) -> str | None:
    if not rdna(query):
        return "ROCM_SEGMENTED_ATTN requires AMD RDNA GPUs on ROCm"
    fp8 = query.kv_cache_dtype in ("fp8", "fp8_e4m3")
    return "FP8 segmented attention requires gfx12" if fp8 and not query.on("rocm", 12) else None
