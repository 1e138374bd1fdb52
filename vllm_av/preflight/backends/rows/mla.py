"""Backends of MLA layers.

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import ANY, FP8_CACHE, FP8_CACHES, PLAIN_CACHE, Row
from vllm_av.preflight.backends.rows.bars import FLASHINFER_MLA, TRITON_MLA
from vllm_av.preflight.capabilities import ALWAYS, NEVER, SINGLE, UNIFORM_BATCH

_HEADS = (320, 512, 576)
"""``MLACommonBackend``'s (mla_attention.py)."""
_NO_GRAPHS = "backend.py:AttentionMetadataBuilder._cudagraph_support"


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0."""
    return (*_nvidia(), *_triton(), *_cpu(), *_rocm(old))


def _nvidia() -> tuple[Row, ...]:
    return (
        Row(
            "FLASHINFER_MLA",
            at="mla/flashinfer_mla.py:FlashInferMLABackend",
            graphs_at="mla/flashinfer_mla.py:FlashInferMLAMetadataBuilder._cudagraph_support",
            caches=FP8_CACHE,
            heads=_HEADS,
            blocks=(32, 64),
            gpus=lambda query: query.on("cuda", 10),
            mla=True,
            non_causal=True,
            non_causal_dcp=True,
            dcp=True,
            pcp=True,
            combination=_flashinfer,
            # The class of an unpatched vLLM says ALWAYS, which does not hold.
            graphs=lambda query: UNIFORM_BATCH if query.dcp > 1 else ALWAYS,
            bars=FLASHINFER_MLA,
        ),
        Row(
            "TOKENSPEED_MLA",
            at="mla/tokenspeed_mla.py:TokenspeedMLABackend",
            graphs_at="mla/tokenspeed_mla.py:TokenspeedMLAMetadataBuilder._cudagraph_support",
            caches=("fp8", "fp8_e4m3"),
            heads=_HEADS,
            blocks=(32, 64),
            gpus=lambda query: query.on("cuda", 10),
            mla=True,
            non_causal=True,
            non_causal_dcp=True,
            dcp=True,
            pcp=True,
            combination=_tokenspeed,
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "CUTLASS_MLA",
            at="mla/cutlass_mla.py:CutlassMLABackend",
            graphs_at="mla/cutlass_mla.py:CutlassMLAMetadataBuilder._cudagraph_support",
            caches=FP8_CACHE,
            heads=_HEADS,
            blocks=(128,),
            gpus=lambda query: query.on("cuda", 10),
            mla=True,
            dcp=True,
            pcp=True,
            graphs=SINGLE,
        ),
        Row(
            "FLASH_ATTN_MLA",
            at="mla/flashattn_mla.py:FlashAttnMLABackend",
            graphs_at="mla/flashattn_mla.py:FlashAttnMLAMetadataBuilder._cudagraph_support",
            caches=PLAIN_CACHE,
            heads=_HEADS,
            blocks=(16,),
            gpus=lambda query: query.gpu.major == 9,
            mla=True,
            batch_invariant=True,
            dcp=True,
            pcp=True,
            combination=lambda query: (
                None
                if query.on("cuda", 9) or query.on("xpu")
                else "FlashAttention MLA not supported on this device"
            ),
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "FLASHMLA",
            at="mla/flashmla.py:FlashMLABackend",
            graphs_at="mla/flashmla.py:FlashMLAMetadataBuilder._cudagraph_support",
            caches=FP8_CACHE,
            heads=_HEADS,
            blocks=(64,),
            gpus=lambda query: query.gpu.major in (9, 10),
            mla=True,
            dcp=True,
            pcp=True,
            combination=_flashmla,
            graphs=UNIFORM_BATCH,
        ),
    )


def _triton() -> tuple[Row, ...]:
    return (
        Row(
            "TRITON_MLA",
            at="mla/triton_mla.py:TritonMLABackend",
            graphs_at="mla/triton_mla.py:TritonMLAMetadataBuilder._cudagraph_support",
            caches=FP8_CACHE,
            blocks=(16,),
            mla=True,
            non_causal=True,
            batch_invariant=True,
            dcp=True,
            pcp=True,
            graphs=UNIFORM_BATCH,
            bars=TRITON_MLA,
        ),
        Row(
            "XPU_FLASH_ATTN_MLA",
            at="mla/flashattn_mla.py:XPUFlashAttnMLABackend",
            graphs_at="mla/flashattn_mla.py:XPUFlashAttnMLAMetadataBuilder._cudagraph_support",
            caches=PLAIN_CACHE,
            heads=(576,),
            blocks=(64,),
            mla=True,
            batch_invariant=True,
            pcp=True,
            graphs=SINGLE,
        ),
    )


def _cpu() -> tuple[Row, ...]:
    return (
        Row(
            "CPU_MLA",
            at="mla/cpu_mla.py:CPUMLABackend",
            graphs_at=_NO_GRAPHS,
            dtypes=ANY,
            caches=("auto",),
            heads=(576,),
            blocks=(16,),
            exact_blocks=True,
            mla=True,
            pcp=True,
            graphs=NEVER,
        ),
        Row(
            "AMX_MLA",
            at="mla/amx_mla.py:AMXMLABackend",
            graphs_at=_NO_GRAPHS,
            dtypes=("bfloat16",),
            heads=(576,),
            blocks=(32,),
            mla=True,
            pcp=True,
            graphs=NEVER,
        ),
    )


def _rocm(old: bool) -> tuple[Row, ...]:
    at = "mla/rocm_aiter_mla.py"
    aiter = Row(
        "ROCM_AITER_MLA",
        at=f"{at}:AiterMLABackend",
        graphs_at=f"{at}:AiterMLAMetadataBuilder._cudagraph_support",
        caches=FP8_CACHES,
        blocks=(1,),
        mla=True,
        # mla_decode_fwd takes causal=, and gfx942 has no kernels for it
        non_causal=lambda query: query.on("rocm") and query.capability == (9, 5),
        non_causal_dcp=True,
        dcp=True,
        pcp=True,
        combination=_aiter,
        graphs=UNIFORM_BATCH,
        bound=lambda query: None if old or query.dcp > 1 else query.max_query_len,
        bound_at=None
        if old
        else f"{at}:AiterMLAMetadataBuilder.get_varlen_cudagraph_max_query_len",
    )
    triton = Row(
        "ROCM_AITER_TRITON_MLA",
        at="mla/aiter_triton_mla.py:AiterTritonMLABackend",
        graphs_at=aiter.graphs_at,
        caches=aiter.caches,
        blocks=(1,),
        mla=True,
        non_causal=aiter.non_causal,
        non_causal_dcp=True,
        dcp=True,
        pcp=True,
        combination=_aiter,
        graphs=UNIFORM_BATCH,
        bound=aiter.bound,
        bound_at=aiter.bound_at,
    )
    return (aiter, triton)


def _aiter(query: Query) -> str | None:
    half = query.dtype == "float16" and query.kv_cache_dtype in ("auto", "float16")
    return "non-causal fp16 MLA decode not supported" if query.non_causal and half else None


def _flashinfer(query: Query) -> str | None:
    nope = query.text_config.get("qk_nope_head_dim", 1)
    if nope in (64, 128, 192):
        return None
    return f"FlashInfer MLA kernel requires qk_nope_head_dim in [64, 128, 192], but got {nope}"


def _tokenspeed(query: Query) -> str | None:
    if "tokenspeed-mla" not in query.packages:
        return (
            "tokenspeed_mla package is not installed. "
            "Install it with: `uv pip install tokenspeed-mla`"
        )
    names = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    sizes = tuple(query.text_config.get(name, 0) for name in names)
    if sizes == (128, 64, 128):
        return None
    return (
        "tokenspeed_mla requires DeepSeek R1 MLA dimensions "
        f"(qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128), got {sizes}"
    )


def _flashmla(query: Query) -> str | None:
    if query.sparse:
        if query.on("cuda", 9, 10):
            return None
        return "FlashMLA Sparse is only supported on Hopper and Blackwell DC devices."
    return None if query.on("cuda", 9) else "FlashMLA Dense is only supported on Hopper devices."
