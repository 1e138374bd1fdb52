"""Backends of layers with a state instead of keys and values. The model names them.

Rule: see :mod:`vllm_av.preflight.backends.row`.
"""

from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import ANY, LENS, Row
from vllm_av.preflight.capabilities import SINGLE, UNIFORM_BATCH

_BASE = "mamba_attn.py:BaseMambaAttentionMetadataBuilder._cudagraph_support"


def rows(old: bool) -> tuple[Row, ...]:
    """Of 0.33.0; with ``old`` of 0.32.0, where Mamba 2 had no bound and no exemption."""
    mamba2 = "mamba2_attn.py:Mamba2AttentionBackend"
    return (
        _row("MAMBA1", "mamba1_attn.py:Mamba1AttentionBackend", _BASE),
        _row("MAMBA2", mamba2, _BASE)
        if old
        else Row(
            "MAMBA2",
            at=mamba2,
            dtypes=ANY,
            lens=lambda query: not query.replayssm,
            lens_at=f"{mamba2}.supports_device_cpu_query_lens_mismatch",
            graphs=UNIFORM_BATCH,
            graphs_at=_BASE,
            bound=_whole_block,
            bound_at="mamba2_attn.py:Mamba2AttentionMetadataBuilder"
            ".get_varlen_cudagraph_max_query_len",
            note=lambda query: "ReplaySSM" if query.replayssm else "",
        ),
        _row("SHORT_CONV", "short_conv_attn.py:ShortConvAttentionBackend", _BASE),
        _row(
            "LINEAR",
            "linear_attn.py:LinearAttentionBackend",
            "linear_attn.py:LinearAttentionMetadataBuilder._cudagraph_support",
            SINGLE,
        ),
        _row(
            "GDN_ATTN",
            "gdn_attn.py:GDNAttentionBackend",
            "gdn_attn.py:GDNAttentionMetadataBuilder._cudagraph_support",
        ),
        _row(
            "BAILING_LINEAR_ATTN",
            "linear_attn.py:BailingLinearAttentionBackend",
            "linear_attn.py:BailingLinearAttentionMetadataBuilder.get_cudagraph_support",
        ),
        _row(
            "PLE_SHORT_CONV_ATTN",
            "short_conv_attn.py:PleShortConvAttentionBackend",
            "short_conv_attn.py:PleShortConvAttentionMetadataBuilder._cudagraph_support",
        ),
    )


def _row(name: str, at: str, graphs_at: str, graphs: str = UNIFORM_BATCH) -> Row:
    # is_ssm(): the default of the question whether lengths may differ is no
    return Row(
        name, at=at, graphs_at=graphs_at, dtypes=ANY, lens=False, lens_at=LENS, graphs=graphs
    )


def _whole_block(query: Query) -> int | None:
    return query.max_query_len
