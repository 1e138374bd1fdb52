"""Backends that a model's own code names, past the selector: sparse attention of DeepSeek V3.2, V4
and V4.1, MiniMax M3, Step5, Kimi K3, Qwen4, and attention whose values are smaller than its keys.

Where a model takes one class on one platform and another elsewhere, a row stands for the family.

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from vllm_av.preflight.backends.kernels import deep_gemm, fa_default, fa_graphs
from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import LENS, Row
from vllm_av.preflight.capabilities import ALWAYS, UNIFORM_BATCH

_INDEXER = "mla/indexer.py"
_MISMATCH = "supports_device_cpu_query_lens_mismatch"
_FLASH_GRAPHS = "flash_attn.py:FlashAttentionMetadataBuilder._cudagraph_support"


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0, which has no Step5."""
    return (
        *_indexers(old),
        *_deepseek_v4(old),
        *_minimax(),
        *_kimi(old),
        *(() if old else _step5()),
        _qwen4(),
    )


def named(name: str, query: Query) -> str:
    """What a model takes that names a backend itself.

    MiMo V2 asks for FlashAttention 3 or 4 where values are smaller than keys, else takes Triton's,
    and lets the user name either (mimo_v2.py).
    """
    if name != "FLASH_ATTN_DIFFKV":
        return name
    if query.named is not None and query.named.endswith("_DIFFKV"):
        return query.named
    return name if query.on("cuda", 9, 10) else "TRITON_ATTN_DIFFKV"


def _indexers(old: bool) -> tuple[Row, ...]:
    graphs_at = f"{_INDEXER}:DeepseekV32IndexerMetadataBuilder.get_cudagraph_support"
    v32 = f"{_INDEXER}:DeepseekV32IndexerBackend"
    v4 = f"{_INDEXER}:DeepseekV4IndexerBackend"

    def lens(query: Query) -> bool:
        return query.on("cuda", 9, 10) and deep_gemm(query)

    def v4_lens(query: Query) -> bool:
        return query.on("rocm") or lens(query)

    def row(name: str, at: str, lens_at: str, able: bool) -> Row:
        return Row(
            name,
            at=at,
            lens=v4_lens if able else lens,
            lens_at=f"{lens_at}.{_MISMATCH}",
            graphs=lambda query: _indexer_graphs(query, old),
            graphs_at=graphs_at,
        )

    v41 = f"{_INDEXER}:DeepseekV41IndexerBackend"
    return (
        row("DEEPSEEK_V32_INDEXER", v32, v32, False),
        row("DEEPSEEK_V4_INDEXER", v4, v4, True),
        row("DEEPSEEK_V41_INDEXER", v41, v41 if old else v4, not old),
        Row(
            "KPOOL_TAIL",
            at=f"{_INDEXER}:KpoolTailBackend",
            lens=lens,
            lens_at=f"{v32}.{_MISMATCH}",
            graphs=ALWAYS,
            graphs_at=f"{_INDEXER}:KpoolTailMetadataBuilder._cudagraph_support",
        ),
    )


def _indexer_graphs(query: Query, old: bool) -> str:
    """ALWAYS where its kernel takes lengths from the device, or each query is a row of its own."""
    lengths = query.max_query_len
    if query.on("cuda", 10):
        return ALWAYS  # takes them
    native = lengths in ((1, 2, 4) if query.on("cuda", 9) else (1, 2))
    v4 = ("DeepseekV4ForCausalLM",) if old else ("DeepseekV4ForCausalLM", "DeepseekV41ForCausalLM")
    flat = query.on("cuda", 9) or (query.on("rocm") and query.architecture in v4)
    return UNIFORM_BATCH if native and not flat else ALWAYS


def _deepseek_v4(old: bool) -> tuple[Row, ...]:
    def row(
        name: str,
        nvidia: str,
        builder: str,
        elsewhere: dict[str, str],
        uniform: tuple[str, ...],
        built: dict[str, str],
    ) -> Row:
        return Row(
            name,
            at=nvidia,
            elsewhere=elsewhere,
            graphs=lambda query: UNIFORM_BATCH if query.gpu.platform in uniform else ALWAYS,
            graphs_at=builder,
            graphs_elsewhere=built,
        )

    def built(folder: str, sm12: str, rocm: str | None) -> dict[str, str]:
        """Where SM12x's builder, and ROCm's, say what their graphs replay."""
        amd = f"{folder}/amd/rocm.py:{rocm}MetadataBuilder.get_cudagraph_support"
        nvidia = f"{folder}/nvidia/flashinfer_sparse.py:{sm12}MetadataBuilder._cudagraph_support"
        return {"sm12": nvidia, **({"rocm": amd} if rocm else {})}

    swa12, mla12 = "DeepseekSparseSWAFlashInfer", "DeepseekV4FlashInferSparseMLA"

    sparse, swa = "sparse_mla.py", "mla/sparse_swa.py:DeepseekSparseSWABackend"
    v4, v41 = "deepseek_v4", "deepseek_v41"
    v41_rocm = "DeepseekV4ROCMAiter" if old else "DeepseekV41ROCMAiter"
    graphs = "FlashMLAMetadataBuilder._cudagraph_support"
    return (
        row(
            "DEEPSEEK_SPARSE_SWA",
            f"{v4}/nvidia/flashmla.py:DeepseekSparseSWAFlashMLABackend",
            f"{v4}/nvidia/flashmla.py:DeepseekSparseSWA{graphs}",
            {"rocm": swa, "xpu": swa, "cpu": swa},
            ("xpu", "cpu"),
            built(v4, swa12, "DeepseekV4ROCMAiterSparseSWA"),
        ),
        row(
            "DEEPSEEK_V4_SPARSE_MLA",
            f"{v4}/{sparse}:DeepseekV4FlashMLABackend",
            f"{v4}/{sparse}:DeepseekV4{graphs}",
            {
                "rocm": f"{v4}/amd/rocm.py:DeepseekV4ROCMAiterMLASparseBackend",
                "xpu": f"{v4}/xpu/xpu_sparse.py:DeepseekV4XPUSparseBackend",
                "cpu": f"{v4}/cpu/cpu_mla.py:DeepseekV4CPUSparseBackend",
            },
            ("xpu", "cpu"),
            built(v4, mla12, "DeepseekV4ROCMAiterMLASparse"),
        ),
        row(
            "DEEPSEEK_V41_SPARSE_SWA",
            f"{v41}/nvidia/flashmla.py:DeepseekSparseSWAFlashMLABackend",
            f"{v41}/nvidia/flashmla.py:DeepseekSparseSWA{graphs}",
            {"rocm": f"{v41}/amd/rocm.py:DeepseekV41ROCMAiterSparseSWABackend"},
            ("rocm",) if old else (),
            built(v41, swa12, None if old else "DeepseekV41ROCMAiterSparseSWA"),
        ),
        row(
            "DEEPSEEK_V41_SPARSE_MLA",
            f"{v41}/{sparse}:DeepseekV4FlashMLABackend",
            f"{v41}/{sparse}:DeepseekV4{graphs}",
            {"rocm": f"{v41}/amd/rocm.py:{v41_rocm}MLASparseBackend"},
            ("rocm",) if old else (),
            built(v41, mla12, None if old else "DeepseekV41ROCMAiterMLASparse"),
        ),
        Row(
            "CompressorBackend",
            at=f"{v4}/compressor.py:CompressorBackend",
            graphs=ALWAYS,
            graphs_at=f"{v4}/compressor.py:CompressorMetadataBuilder._cudagraph_support",
        ),
    )


def _minimax() -> tuple[Row, ...]:
    sparse, index = "minimax_m3/common/sparse_attention.py", "minimax_m3/common/indexer.py"
    return (
        Row(
            "MINIMAX_M3_SPARSE",
            at=f"{sparse}:MiniMaxM3SparseBackend",
            graphs=UNIFORM_BATCH,
            graphs_at=f"{sparse}:MiniMaxM3SparseMetadataBuilder._cudagraph_support",
        ),
        Row(
            "MINIMAX_M3_SPARSE_INDEXER",
            at=f"{index}:MiniMaxM3IndexerBackend",
            graphs=UNIFORM_BATCH,
            graphs_at=f"{index}:MiniMaxM3IndexerMetadataBuilder._cudagraph_support",
        ),
    )


def _kimi(old: bool) -> tuple[Row, ...]:
    nvidia, amd = "kimi_k3/nvidia/kda_metadata.py", "kimi_k3/amd/kda_metadata.py"
    varlen = f"{amd}:KimiK3ROCmKDAMetadataBuilder.get_varlen_cudagraph_max_query_len"
    return (
        Row(
            "KIMI_K3_KDA",
            at=f"{nvidia}:KimiK3KDAAttentionBackend",
            elsewhere={"rocm": f"{amd}:KimiK3ROCmKDABackend"},
            lens=lambda query: not (old and query.on("rocm")),
            lens_at=LENS if old else f"{nvidia}:KimiK3KDAAttentionBackend.{_MISMATCH}",
            graphs=lambda query: UNIFORM_BATCH if query.on("rocm") else ALWAYS,
            graphs_at=f"{nvidia}:KimiK3KDAMetadataBuilder._cudagraph_support",
            bound=lambda query: query.max_query_len if query.on("rocm") and not old else None,
            bound_at=None if old else varlen,
        ),
    )


def _step5() -> tuple[Row, ...]:
    at = "step5/nvidia/sparse_attention.py"
    summary, tail = "step5/nvidia/sparse_summary_cache.py", "step5/nvidia/csa_tail_ring.py"
    return (
        Row(
            "STEP5_DSA",
            at=f"{at}:Step5DSAAttentionBackend",
            graphs=UNIFORM_BATCH,
            graphs_at=f"{at}:Step5DSAMetadataBuilder.get_cudagraph_support",
        ),
        Row(
            "STEP5_FLASH_ATTN",
            at=f"{at}:Step5SplitKVFlashAttentionBackend",
            graphs=fa_graphs,
            graphs_at=_FLASH_GRAPHS,
            note=lambda query: f"FA{fa_default(query)}",
        ),
        Row(
            "STEP5_CSA_SUMMARY",
            at=f"{summary}:Step5SparseSummaryBackend",
            graphs=ALWAYS,
            graphs_at=f"{summary}:Step5SparseSummaryMetadataBuilder._cudagraph_support",
        ),
        Row(
            "STEP5_CSA_TAIL_RING",
            at=f"{tail}:Step5CSATailRingBackend",
            graphs=ALWAYS,
            graphs_at=f"{tail}:Step5CSATailRingMetadataBuilder._cudagraph_support",
        ),
    )


def _qwen4() -> Row:
    nvidia, amd = "qwen4_exp/nvidia/qsa.py", "qwen4_exp/amd/qsa.py"
    return Row(
        "QWEN4_EXP_QSA_TRITON",
        at=f"{nvidia}:Qwen4ExpQSAFlashAttentionBackend",
        elsewhere={"rocm": f"{amd}:Qwen4ExpQSAFlashAttentionBackend"},
        graphs=UNIFORM_BATCH,
        graphs_at=f"{nvidia}:Qwen4ExpQSAMetadataBuilder._cudagraph_support",
    )
