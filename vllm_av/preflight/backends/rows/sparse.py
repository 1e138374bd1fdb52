"""Backends of sparse MLA layers (DeepSeek V3.2, GLM-5 and their kin).

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from vllm_av.preflight.backends.kernels import fa_supported
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import FP8_CACHE, PLAIN_CACHE, Row
from vllm_av.preflight.capabilities import NEVER, UNIFORM_BATCH

_FI = "mla/flashinfer_mla_sparse.py"
_FA = "mla/flashattn_mla_sparse.py"


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0, which has no FA4 for them."""
    bound_at = f"{_FI}:FlashInferMLASparseTRTLLMMetadataBuilder.get_varlen_cudagraph_max_query_len"
    fa4 = Row(
        "FLASH_ATTN_MLA_SPARSE_FA4",
        at=f"{_FA}:FlashAttnMLASparseFA4Backend",
        graphs_at=f"{_FI}:FlashInferMLASparseTRTLLMMetadataBuilder._cudagraph_support",
        dtypes=("bfloat16",),
        caches=("auto", "bfloat16"),
        heads=(576,),
        blocks=(64,),
        gpus=lambda query: query.on("cuda", 10),
        mla=True,
        sparse=True,
        dcp=True,
        pcp=True,
        combination=_fa4,
        graphs=UNIFORM_BATCH,
        bound=lambda query: query.max_query_len,
        bound_at=bound_at,
    )
    return (
        Row(
            "FLASHINFER_MLA_SPARSE",
            at=f"{_FI}:FlashInferMLASparseTRTLLMBackend",
            graphs_at=f"{_FI}:FlashInferMLASparseTRTLLMMetadataBuilder._cudagraph_support",
            caches=FP8_CACHE,
            heads=(512, 576),
            blocks=(32,),
            gpus=lambda query: query.gpu.major == 10,
            mla=True,
            sparse=True,
            dcp=True,
            pcp=True,
            combination=lambda query: _trtllm(query, "FLASHINFER_MLA_SPARSE"),
            graphs=UNIFORM_BATCH,
            bound=lambda query: query.max_query_len,
            bound_at=bound_at,
        ),
        *(() if old else (fa4,)),
        *_without_bound(),
        *_elsewhere(),
    )


def _without_bound() -> tuple[Row, ...]:
    return (
        Row(
            "FLASHINFER_MLA_SPARSE_SM120",
            at=f"{_FI}:FlashInferMLASparseSM120Backend",
            graphs_at=f"{_FI}:FlashInferMLASparseMetadataBuilder._cudagraph_support",
            dtypes=("bfloat16",),
            caches=("auto", "fp8", "fp8_e4m3", "fp8_ds_mla"),
            heads=(512, 576),
            blocks=(64,),
            gpus=lambda query: query.gpu.major == 12,
            mla=True,
            sparse=True,
            pcp=True,
            combination=_sm120,
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "FLASHINFER_MLA_SPARSE_SM90",
            at="mla/flashinfer_mla_sparse_sm90.py:FlashInferMLASparseSM90Backend",
            graphs_at=f"{_FI}:FlashInferMLASparseMetadataBuilder._cudagraph_support",
            dtypes=("bfloat16",),
            caches=("auto", "bfloat16", "fp8", "fp8_e4m3"),
            heads=(512, 576),
            blocks=(64,),
            gpus=lambda query: query.gpu.major == 9,
            mla=True,
            sparse=True,
            pcp=True,
            combination=_sm90,
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "FLASH_ATTN_MLA_SPARSE",
            at=f"{_FA}:FlashAttnMLASparseBackend",
            graphs_at=f"{_FA}:FlashAttnMLASparseMetadataBuilder._cudagraph_support",
            caches=PLAIN_CACHE,
            blocks=(64,),
            gpus=lambda query: query.gpu.major == 9,
            mla=True,
            sparse=True,
            pcp=True,
            combination=_flash_attn,
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "FLASHMLA_SPARSE",
            at="mla/flashmla_sparse.py:FlashMLASparseBackend",
            graphs_at="mla/flashmla_sparse.py:FlashMLASparseMetadataBuilder._cudagraph_support",
            dtypes=("bfloat16",),
            caches=("auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla"),
            heads=(576, 512),
            blocks=(64,),
            gpus=lambda query: query.gpu.major in (9, 10),
            mla=True,
            sparse=True,
            dcp=True,
            pcp=True,
            combination=_flashmla,
            graphs=UNIFORM_BATCH,
        ),
    )


def _elsewhere() -> tuple[Row, ...]:
    return (
        Row(
            "ROCM_AITER_MLA_SPARSE",
            at="mla/rocm_aiter_mla_sparse.py:ROCMAiterMLASparseBackend",
            graphs_at="mla/rocm_aiter_mla_sparse.py:ROCMAiterMLASparseMetadataBuilder"
            "._cudagraph_support",
            caches=FP8_CACHE,
            blocks=(1, 16),
            mla=True,
            sparse=True,
            sink=lambda query: query.capability in ((9, 4), (9, 5)),
            pcp=True,
            graphs=UNIFORM_BATCH,
        ),
        Row(
            "XPU_MLA_SPARSE",
            at="mla/xpu_mla_sparse.py:XPUMLASparseBackend",
            graphs_at="mla/xpu_mla_sparse.py:XPUMLASparseMetadataBuilder._cudagraph_support",
            caches=PLAIN_CACHE,
            heads=(576,),
            mla=True,
            sparse=True,
            pcp=True,
            graphs=NEVER,
        ),
    )


def _trtllm(query: Query, name: str) -> str | None:
    config = query.text_config
    if query.pcp > 1 and query.dcp > 1:
        return (
            f"{name} does not support combined PCP+DCP; use FLASHMLA_SPARSE, which gathers each "
            "DCP KV shard before running the rank-local PCP prefill queries"
        )
    if query.kv_cache_dtype == "fp8_ds_mla":
        return f"{name} SM10 does not support fp8_ds_mla kv-cache dtype"
    nope, rope = config.get("qk_nope_head_dim"), config.get("qk_rope_head_dim")
    rank = config.get("kv_lora_rank")
    if rope == 0:
        if nope != 256 or rank != 512:
            return (
                "FlashInfer native no-rope MLA requires qk_nope_head_dim=256 and "
                f"kv_lora_rank=512, but got qk_nope_head_dim={nope}, kv_lora_rank={rank}"
            )
    elif nope not in (128, 192):
        return (
            f"FlashInfer MLA Sparse kernel requires qk_nope_head_dim in [128, 192], but got {nope}"
        )
    if "index_topk" not in config:
        return "FlashInfer MLA Sparse requires model with index_topk config"
    return None


def _fa4(query: Query) -> str | None:
    config = query.text_config
    if not query.flashinfer:
        return "FA4 sparse MLA runs its prefill batches on FlashInfer's kernel"
    if not fa_supported(query, 4):
        return (
            "FA4 unavailable: FA4 is only supported on devices with compute capability 9.x, 10.x, "
            "or 11.x"
        )
    topk = config.get("index_topk")
    if topk is None or topk % 128:
        return f"FA4 sparse MLA requires index_topk % 128 == 0, got {topk}"
    sizes = (config.get("kv_lora_rank"), config.get("qk_rope_head_dim"))
    if sizes != (512, 64):
        return f"FA4 sparse MLA requires (kv_lora_rank, qk_rope_head_dim) == (512, 64), got {sizes}"
    counts = (8, 16, 32, 64) if query.dcp > 1 else (8, 16, 32, 64, 128)
    if query.num_heads * query.dcp not in counts:
        return (
            f"FA4 sparse MLA requires {counts} gathered query heads, "
            f"got num_heads={query.num_heads} * dcp_size={query.dcp}"
        )
    return _trtllm(query, "FLASH_ATTN_MLA_SPARSE_FA4")


def _sm120(query: Query) -> str | None:
    if not query.flashinfer:
        return "FLASHINFER_MLA_SPARSE_SM120 requires FlashInfer's sparse MLA decode API"
    if query.dtype != "bfloat16":
        return "dtype not supported"
    if query.kv_cache_dtype not in ("auto", "fp8", "fp8_e4m3", "fp8_ds_mla"):
        return "kv_cache_dtype not supported"
    topk = query.text_config.get("index_topk")
    if topk is None:
        return "FLASHINFER_MLA_SPARSE_SM120 requires a model with index_topk config"
    if int(topk) != 2048:
        return f"FLASHINFER_MLA_SPARSE_SM120 requires index_topk=2048; got {topk}"
    return None


def _sm90(query: Query) -> str | None:
    if not query.flashinfer:
        return (
            "FLASHINFER_MLA_SPARSE_SM90 requires FlashInfer with SM90 MLA support (ckv_scale_arr "
            "in BatchMLAPagedAttentionWrapper.run, FlashInfer >= 0.6.18)"
        )
    if not query.sparse:
        return "FLASHINFER_MLA_SPARSE_SM90 requires sparse MLA"
    if query.text_config.get("kv_lora_rank") != 512:
        return "FLASHINFER_MLA_SPARSE_SM90 requires kv_lora_rank=512"
    if query.text_config.get("qk_rope_head_dim") not in (0, 64):
        return "FLASHINFER_MLA_SPARSE_SM90 requires qk_rope_head_dim in (0, 64)"
    return None


def _flash_attn(query: Query) -> str | None:
    if query.kv_cache_dtype not in PLAIN_CACHE:
        return "FlashAttention MLA Sparse currently supports only FP16/BF16 KV cache"
    if not (query.on("cuda", 9) or query.on("xpu")):
        return "FlashAttention MLA not supported on this device"
    if query.dcp > 1:
        return "FlashAttention MLA Sparse does not support DCP for now"
    if "index_topk" not in query.text_config:
        return "FlashAttention MLA Sparse requires model with index_topk"
    return None


def _flashmla(query: Query) -> str | None:
    cache, major, minor = query.kv_cache_dtype, query.gpu.major, query.gpu.minor
    if query.head_size == 512:
        if cache not in ("auto", "bfloat16", "float16", "fp8_ds_mla") or major != 9:
            return (
                "FLASHMLA_SPARSE supports head_size 512 only with bf16 or fp8_ds_mla kv-cache on "
                f"SM90 (NoPE), got kv_cache_dtype={cache}, "
                f"capability=DeviceCapability(major={major}, minor={minor})"
            )
        if query.text_config.get("qk_rope_head_dim", 64) != 0:
            return "FLASHMLA_SPARSE supports head_size 512 only for rope-free (NoPE) models"
    if cache == "nvfp4_ds_mla" and major != 10:
        return f"FLASHMLA_SPARSE only supports the {cache} kv-cache dtype on SM100 (Blackwell)"
    return None
