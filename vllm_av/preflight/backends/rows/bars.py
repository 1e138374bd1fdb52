"""What the constructors of single backends refuse, though their classes take it.

Left out is what no question can ask: encoders, fused output quantization, and a backend of MLA for
layers with a window.

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from vllm_av.preflight.backends.kernels import quantized
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import Bar


def _ratio(query: Query) -> int:
    """Query heads of a key-value head."""
    return query.num_heads // query.num_kv_heads


def triton(at: str) -> tuple[Bar, ...]:
    """What Triton's kernels cannot read on an older GPU of NVIDIA's."""
    return (
        Bar(
            lambda query: (
                query.on("cuda")
                and query.kv_cache_dtype.startswith("fp8")
                and query.capability < (8, 9)
            ),
            "native FP8 (fp8e4nv) requires SM89+",
            at,
        ),
        Bar(
            lambda query: (
                query.on("cuda")
                and query.kv_cache_dtype == "bfloat16"
                and query.capability < (8, 0)
            ),
            "bfloat16 requires SM80+",
            at,
        ),
    )


TRITON = triton("triton_attn.py:TritonAttentionImpl.__init__")
TRITON_MLA = triton("mla/triton_mla.py:TritonMLAImpl.__init__")

_FLEX = "flex_attention.py:FlexAttentionImpl.__init__"
FLEX = (
    Bar(lambda query: query.alibi, "FlexAttention does not support alibi slopes yet", _FLEX),
    Bar(lambda query: query.soft_cap, "FlexAttention does not support logits soft cap yet", _FLEX),
    Bar(lambda query: query.shared_kv, "FlexAttention does not support kv sharing yet", _FLEX),
)

_B12X = "b12x.py:B12xPagedAttentionImpl.__init__"
B12X = (
    Bar(lambda query: query.alibi, "b12x does not support ALiBi", _B12X),
    Bar(lambda query: query.soft_cap, "b12x does not support logits soft cap", _B12X),
)

_HPC = "hpc_attn.py:HpcAttentionImpl.__init__"
HPC = (
    Bar(lambda query: query.alibi, "HPC attention does not support ALiBi", _HPC),
    Bar(lambda query: query.soft_cap, "HPC attention does not support logits_soft_cap", _HPC),
    Bar(
        lambda query: _ratio(query) not in (4, 8),
        "HPC attention only supports head_per_group in {4, 8}",
        _HPC,
    ),
)

CPU = (
    Bar(
        lambda query: quantized(query) and query.head_size % 32 == 16,
        "FP8 KV cache requires head_size divisible by 32 on CPU",
        "cpu_attn.py:_get_attn_isa",
    ),
)

SEGMENTED = (
    Bar(
        lambda query: query.alibi or query.num_heads % query.num_kv_heads > 0 or _ratio(query) > 16,
        "GQA ratio 1-16, and does not support ALiBi",
        "rocm_segmented_attn.py:RocmSegmentedAttentionImpl.__init__",
    ),
)

FLASHINFER_MLA = (
    Bar(
        # its ranged route gives no log-sum-exp, which the ranks need; the other takes one length
        lambda query: query.dcp > 1,
        "DCP and adaptive variable-length decode are mutually exclusive",
        "mla/flashinfer_mla.py:FlashInferMLAImpl.forward_mqa",
        trimming=True,
    ),
)
