"""What vLLM's selector is told about a group of layers (``AttentionSelectorConfig``), and the rest
of the config that the backends look at, as plain values.

Rule: whatever a backend's answer hangs on is a field here, so that the table and the classes can
be asked the same.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from vllm_av.preflight.backends.versions import is_old
from vllm_av.preflight.facts import Gpu, LayerGroup, LayerKind, Setup

STATEFUL: Mapping[LayerKind, str] = {
    LayerKind.MAMBA1: "MAMBA1",
    LayerKind.MAMBA2: "MAMBA2",
    LayerKind.SHORT_CONV: "SHORT_CONV",
    LayerKind.LINEAR: "LINEAR",
    LayerKind.GDN: "GDN_ATTN",
}
"""Layers with a state instead of keys and values -> their one backend."""

OPTIONAL = ("b12x", "tokenspeed-mla")
"""Packages that vLLM does not bring, and without which a backend is left out."""


@cache
def optional() -> frozenset[str]:
    """Those of them that are installed here."""
    found = set()
    for name in OPTIONAL:
        with suppress(PackageNotFoundError):
            version(name)
            found.add(name)
    return frozenset(found)


@dataclass(frozen=True)
class Query:
    """One question to the selector.

    Args:
        gpu: on which it runs.
        head_size, dtype, kv_cache_dtype, block_size: as in ``AttentionSelectorConfig``; the block
            size only where the user names one.
        num_heads, num_kv_heads: of one tensor-parallel rank.
        num_speculative_tokens: K.
        dcp, pcp: sizes of decode and prefill context parallelism.
        text_config: the target's ``config.json``, of a multimodal model its text part.
        flash_attn_version: where the user forces one.
        trtllm: ``use_trtllm_attention`` where the user sets it.
        named: the backend that the user names for these layers.
        model_named: the one that the model's code names, past the selector.
        chunked: whether the layers attend within chunks, in a wrapper around the backend.
        soft_cap, alibi, alibi_sqrt, shared_kv: of the layers, which the selector is not told.
        patched: whether the selector is that of this package's series.
        aiter: which of ROCm's AITER switches are on: ``master``, ``mha``, ``mla``.
        old: whether the rules are those of 0.32.0.
        packages: those of :data:`OPTIONAL` that are installed here.
        flashinfer: whether its kernels can be had.
    """

    gpu: Gpu
    head_size: int
    dtype: str
    kv_cache_dtype: str
    block_size: int | None
    num_heads: int
    num_kv_heads: int
    num_speculative_tokens: int
    mla: bool = False
    sparse: bool = False
    sink: bool = False
    sliding: bool = False
    mm_prefix: bool = False
    non_causal: bool = False
    batch_invariant: bool = False
    kv_connector: bool = False
    rswa: bool = False
    dcp: int = 1
    pcp: int = 1
    architecture: str = ""
    text_config: Mapping[str, Any] = field(default_factory=dict)
    flash_attn_version: int | None = None
    trtllm: bool | None = None
    replayssm: bool = False
    named: str | None = None
    model_named: str | None = None
    chunked: bool = False
    soft_cap: bool = False
    alibi: bool = False
    alibi_sqrt: bool = False
    shared_kv: bool = False
    patched: bool = False
    aiter: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    old: bool = False
    flashinfer: bool = True

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, to compare with."""
        return (self.gpu.major, self.gpu.minor)

    @property
    def max_query_len(self) -> int:
        """K + 1."""
        return self.num_speculative_tokens + 1

    def on(self, platform: str, *majors: int) -> bool:
        """Whether it runs there, on one of these families."""
        return self.gpu.platform == platform and (not majors or self.gpu.major in majors)


def query(setup: Setup, group: LayerGroup) -> Query:
    """What is asked for a group of layers; ``setup.gpu`` is known."""
    assert setup.gpu is not None
    attention = _mapping(setup.features.get("attention_config"))
    ranks = setup.tensor_parallel_size
    mla = group.kind in (LayerKind.MLA, LayerKind.MLA_SPARSE)
    chunked = group.kind is LayerKind.CHUNKED
    return Query(
        gpu=setup.gpu,
        head_size=group.head_size,
        dtype=setup.target.dtype,
        kv_cache_dtype=setup.kv_cache_dtype,
        block_size=setup.block_size,
        num_heads=max(1, group.num_heads // ranks),
        num_kv_heads=max(1, group.num_kv_heads // ranks),
        num_speculative_tokens=setup.draft.num_speculative_tokens,
        mla=mla,
        sparse=group.kind is LayerKind.MLA_SPARSE,
        # chunked_local_attention.py:101 tells the selector nothing but sizes
        sink=group.sink and not chunked,
        sliding=group.kind is LayerKind.SLIDING,
        mm_prefix=group.mm_prefix and not mla and not chunked,
        non_causal=bool(attention.get("use_non_causal", False)),
        batch_invariant=_on(setup.environment, "VLLM_BATCH_INVARIANT"),
        kv_connector=bool(setup.features.get("kv_transfer_config")),
        dcp=setup.decode_context_parallel_size,
        pcp=setup.prefill_context_parallel_size,
        architecture=setup.target.architecture,
        text_config=_text(setup.target.config),
        flash_attn_version=attention.get("flash_attn_version"),
        trtllm=attention.get("use_trtllm_attention"),
        replayssm=bool(setup.features.get("use_replayssm")),
        named=_named(setup, group),
        model_named=group.backend or STATEFUL.get(group.kind),
        chunked=chunked,
        soft_cap=group.soft_cap,
        alibi=group.alibi,
        alibi_sqrt=group.alibi_sqrt,
        shared_kv=group.shared_kv,
        patched=setup.patched,
        packages=optional(),
        old=is_old(setup.vllm),
        aiter=_aiter(setup.environment),
    )


def _on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "0") not in ("", "0")


def _aiter(environment: Mapping[str, str]) -> frozenset[str]:
    """``VLLM_ROCM_USE_AITER`` switches the library on, and the others parts of it off again."""

    def on(name: str, default: str) -> bool:
        return environment.get(name, default).lower() in ("true", "1")

    if not on("VLLM_ROCM_USE_AITER", "0"):
        return frozenset()
    parts = {part for part in ("mla", "mha") if on(f"VLLM_ROCM_USE_AITER_{part.upper()}", "1")}
    return frozenset({"master", *parts})


def _named(setup: Setup, group: LayerGroup) -> str | None:
    """``backend_per_kind`` goes before ``backend`` (selector.py, ``get_attn_backend``)."""
    kinds = {
        LayerKind.FULL: "full_attention",
        LayerKind.CHUNKED: "full_attention",
        LayerKind.SLIDING: "sliding_window",
        LayerKind.MLA: "mla_attention",
        LayerKind.MLA_SPARSE: "mla_attention",
    }
    return setup.backend_per_kind.get(kinds.get(group.kind, ""), setup.attention_backend)


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("text_config", "llm_config", "language_config", "thinker_config"):
        inner = config.get(key)
        if isinstance(inner, Mapping):
            return _text(inner)
    return config


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
