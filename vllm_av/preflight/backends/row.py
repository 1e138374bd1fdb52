"""One backend of vLLM's, as the table knows it, and what its class would answer.

A row holds what the class declares: plain values where they are constants, a function of the
:class:`Query` where the class looks at the GPU or the config. :func:`invalid` is
``AttentionBackend.validate_configuration`` (vllm/v1/attention/backend.py) over them: the same
checks in the same order in the same words.

Rule: a row says nothing that was not read at the places that it names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vllm_av.preflight.backends.query import Query

Says = bool | Callable[[Query], bool]
"""A constant of the class, or what it makes of a query."""

HALF = ("float16", "bfloat16")
ANY = ("float16", "bfloat16", "float32")
PLAIN_CACHE = ("auto", "float16", "bfloat16")
FP8_CACHE = (*PLAIN_CACHE, "fp8", "fp8_e4m3")
FP8_CACHES = (*FP8_CACHE, "fp8_e5m2")

LENS = "backend.py:AttentionBackend.supports_device_cpu_query_lens_mismatch"
"""What a class that says nothing itself inherits."""

MISMATCH = "device-cpu query lens mismatch not supported, this is needed for adaptive verification"
"""vLLM's words for a backend that plans by the host's query lengths."""


@dataclass(frozen=True)
class Bar:
    """Layers that a backend's constructor, or its way forward, refuses though its class takes them.

    Args:
        met: whether they are such.
        why: in vLLM's words.
        at: where it was read.
        trimming: whether only queries of several lengths meet it.
    """

    met: Callable[[Query], bool]
    why: str
    at: str
    trimming: bool = False


ALIBI_SQRT = Bar(
    lambda query: query.alibi_sqrt,
    "use_alibi_sqrt is not supported by backend",
    "attention.py:Attention.__init__",
)
"""What the layer itself asks of its backend's class."""


@dataclass(frozen=True)
class Row:
    """One backend.

    Args:
        name: of the enum's member, or as its class calls itself where it is in no enum.
        at: file and class, as ``flash_attn.py:FlashAttentionBackend``.
        dtypes, caches: ``supported_dtypes`` and ``supported_kv_cache_dtypes``, or a function that
            also looks at the GPU.
        heads: head sizes, empty for any, or a function.
        blocks: sizes of which a block must be a multiple, empty for any.
        exact_blocks: whether it must be one of them itself.
        gpus: ``supports_compute_capability``.
        combination: ``supports_combination``: why not, else None.
        lens, graphs, bound: the fields of :class:`vllm_av.preflight.capabilities.Candidate`.
        lens_at, graphs_at, bound_at: where they were read.
        note: what the answer hangs on.
        elsewhere: platform -> file and class, where a model takes another class there.
        graphs_elsewhere: platform, of NVIDIA's the family (``sm12``) -> where ``graphs`` was read
            for it.
        alibi_sqrt: ``supports_alibi_sqrt``.
        bars: what the class does not say of itself.
    """

    name: str
    at: str
    graphs_at: str
    dtypes: tuple[str, ...] = HALF
    caches: tuple[str, ...] | Callable[[Query], bool] = PLAIN_CACHE
    heads: tuple[int, ...] | Callable[[Query], bool] = ()
    blocks: tuple[int, ...] | Callable[[Query], tuple[int, ...]] = (1,)
    exact_blocks: bool = False
    gpus: Says = True
    mla: bool = False
    sparse: bool = False
    sink: Says = False
    mm_prefix: Says = False
    sliding: bool = False
    rswa: bool = False
    non_causal: Says = False
    non_causal_dcp: bool = False
    batch_invariant: bool = False
    kv_connector: bool = True
    dcp: bool = False
    pcp: bool = False
    combination: Callable[[Query], str | None] = lambda query: None
    lens: Says = True
    lens_at: str = LENS
    graphs: str | Callable[[Query], str] = "NEVER"
    bound: Callable[[Query], int | None] = lambda query: None
    bound_at: str | None = None
    note: Callable[[Query], str] = lambda query: ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    graphs_elsewhere: Mapping[str, str] = field(default_factory=dict)
    alibi_sqrt: bool = False
    bars: tuple[Bar, ...] = ()


def says(value: Says, query: Query) -> bool:
    """The constant, or what the function makes of the query."""
    return value(query) if callable(value) else value


def invalid(row: Row, query: Query, adaptive: bool) -> list[str]:
    """Why vLLM's selector leaves the backend out, in its words and order; empty if it does not.

    Args:
        row: the backend.
        query: what is asked.
        adaptive: ``use_adaptive_verification`` of the selector's config.
    """
    reasons: list[str | None] = [
        None if _head(row, query) else "head_size not supported",
        None if query.dtype in row.dtypes else "dtype not supported",
        None if _cache(row, query) else "kv_cache_dtype not supported",
        None if _block(row, query) else "block_size not supported",
        _asked(
            query.mm_prefix, says(row.mm_prefix, query), "partial multimodal token full attention"
        ),
        _same(query.mla, row.mla, "MLA"),
        _asked(query.sink, says(row.sink, query), "attention sinks"),
        _same(query.sparse, row.sparse, "sparse"),
        None if says(row.gpus, query) else "compute capability not supported",
        _asked(query.sliding, row.sliding, "sliding window"),
        _asked(query.rswa, row.rswa, "R-SWA"),
        _asked(query.non_causal, says(row.non_causal, query), "non-causal attention"),
        _asked(
            query.mla and query.non_causal and query.dcp > 1,
            row.non_causal_dcp,
            "non-causal MLA attention with DCP",
        ),
        _asked(query.batch_invariant, row.batch_invariant, "batch invariance"),
        _asked(query.kv_connector, row.kv_connector, "KV connector"),
        _asked(query.pcp > 1, row.pcp, "PCP"),
        _asked(query.dcp > 1, row.dcp, "DCP"),
        MISMATCH if adaptive and not says(row.lens, query) else None,
        row.combination(query),
    ]
    return [reason for reason in reasons if reason is not None]


def graphs(row: Row, query: Query) -> str:
    """``AttentionCGSupport`` of its builder, for these layers."""
    return row.graphs(query) if callable(row.graphs) else row.graphs


def met(row: Row, query: Query) -> tuple[Bar, ...]:
    """What stands against the backend beside what its class says."""
    every = row.bars if row.alibi_sqrt else (ALIBI_SQRT, *row.bars)
    return tuple(bar for bar in every if bar.met(query))


def _asked(wanted: bool, able: bool, what: str) -> str | None:
    return f"{what} not supported" if wanted and not able else None


def _same(wanted: bool, able: bool, what: str) -> str | None:
    if wanted == able:
        return None
    return f"{what} not supported" if wanted else f"non-{what} not supported"


def _head(row: Row, query: Query) -> bool:
    if callable(row.heads):
        return row.heads(query)
    return not row.heads or query.head_size in row.heads


def _cache(row: Row, query: Query) -> bool:
    if callable(row.caches):
        return row.caches(query)
    return query.kv_cache_dtype in row.caches


def _block(row: Row, query: Query) -> bool:
    if query.block_size is None:
        return True
    sizes = row.blocks(query) if callable(row.blocks) else row.blocks
    if row.exact_blocks:
        return query.block_size in sizes
    return not sizes or any(query.block_size % size == 0 for size in sizes)
