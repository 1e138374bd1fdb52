"""A stand-in for ``VllmConfig``, where no real one is at hand: what the backends' class methods
read of it, and nothing else.

Making a real one takes a checkpoint's files and seconds; and it would refuse what is to be asked.

Rule: a field that is not here is an ``AttributeError``, which the caller tells, never a guess.
"""

from types import SimpleNamespace
from typing import Any

from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.facts import LayerGroup, LayerKind, Setup

BLOCK = 16
"""Tokens of a block where the user names no size."""


def stand_in(setup: Setup, query: Query) -> Any:
    """The config, as the classes see it."""
    return SimpleNamespace(
        model_config=_model(setup, query),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=setup.tensor_parallel_size,
            pipeline_parallel_size=setup.pipeline_parallel_size,
            data_parallel_size=setup.data_parallel_size,
            decode_context_parallel_size=query.dcp,
            prefill_context_parallel_size=query.pcp,
            cp_kv_cache_interleave_size=1,
        ),
        cache_config=SimpleNamespace(
            cache_dtype=query.kv_cache_dtype,
            block_size=query.block_size or BLOCK,
            user_specified_block_size=query.block_size is not None,
            use_replayssm=query.replayssm,
        ),
        attention_config=_attention(setup, query),
        speculative_config=SimpleNamespace(
            method=setup.draft.method,
            num_speculative_tokens=query.num_speculative_tokens,
            enable_adaptive_verification=True,
            parallel_drafting=False,
        ),
        scheduler_config=SimpleNamespace(
            max_num_seqs=setup.max_num_seqs,
            max_num_batched_tokens=setup.max_num_batched_tokens,
        ),
        compilation_config=SimpleNamespace(static_forward_context={}),
        kv_transfer_config=None,
        num_speculative_tokens=query.num_speculative_tokens,
        use_v2_model_runner=True,
    )


def _model(setup: Setup, query: Query) -> Any:
    config = {key: value for key, value in setup.target.config.items() if isinstance(key, str)}
    return SimpleNamespace(
        architectures=[query.architecture],
        hf_config=SimpleNamespace(**{"model_type": None, **config}),
        hf_text_config=SimpleNamespace(**query.text_config),
        dtype=query.dtype,
        attn_type="decoder",
        is_mm_prefix_lm=query.mm_prefix,
        is_diffusion=False,
        rswa_window=None,
        get_head_size=lambda: query.head_size,
        get_num_attention_heads=lambda *_: query.num_heads,
        get_num_kv_heads=lambda *_: query.num_kv_heads,
    )


def _attention(setup: Setup, query: Query) -> Any:
    from vllm.config.attention import AttentionConfig

    given = setup.features.get("attention_config")
    known = vars(AttentionConfig())
    # backends are named to the selector, not here
    chosen = {
        key: value
        for key, value in (given.items() if isinstance(given, dict) else ())
        if key in known and key not in ("backend", "backend_per_kind")
    }
    return AttentionConfig(**{**chosen, "use_non_causal": query.non_causal})


def spec(query: Query, group: LayerGroup) -> Any:
    """The layers' ``KVCacheSpec``."""
    import torch
    from vllm.v1 import kv_cache_interface as specs

    size = {"block_size": query.block_size or BLOCK}
    dtype = getattr(torch, query.dtype)
    head = {"num_kv_heads": query.num_kv_heads, "head_size": group.head_size, "dtype": dtype}
    if query.mla or group.kind is LayerKind.INDEXER:
        return specs.MLAAttentionSpec(**size, **{**head, "num_kv_heads": 1})
    if group.num_kv_heads and not _stateful(group):
        quantized = specs.get_kv_quant_mode(query.kv_cache_dtype)
        return specs.FullAttentionSpec(**size, **head, kv_quant_mode=quantized)
    return specs.MambaSpec(**size, shapes=((1,),), dtypes=(dtype,))


def _stateful(group: LayerGroup) -> bool:
    kinds = (LayerKind.MAMBA1, LayerKind.MAMBA2, LayerKind.SHORT_CONV, LayerKind.LINEAR)
    return group.kind in (*kinds, LayerKind.GDN)
