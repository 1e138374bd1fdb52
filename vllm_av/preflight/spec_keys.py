"""The keys of vLLM's ``--speculative-config``, and what each takes.

A contract test, ``tests/contract/test_speculative_config.py``, holds them against each vLLM's
``SpeculativeConfig``, which refuses any other key.

Rule: a value is read as vLLM reads it, in pydantic's lenient sense: ``"4"`` is 4, ``"yes"`` true.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from vllm_av.config.block import BLOCK
from vllm_av.config.text import shown
from vllm_av.config.whole import key_meant
from vllm_av.errors import CheckError, Code

_BOOL = (bool, "true or false")
_MAYBE_BOOL = (bool | None, "true or false")
_TEXT = (str | None, "a string")
_INT = (int, "a whole number")
_FROM_1 = (Annotated[int, Field(ge=1)] | None, "a whole number from 1 on")
_FLOAT = (float, "a number")
_ANY = (Any, "")  # vLLM looks at it later, or puts its own there

_MOE = """
    auto triton batched_triton deep_gemm deep_gemm_mega_moe cutlass flashinfer_trtllm
    flashinfer_cutlass flashinfer_cutedsl flashinfer_moe_ep_cutedsl flashinfer_b12x b12x
    flashinfer_moe_ep_mega_deep_gemm marlin humming triton_unfused aiter aiter_mega_moe
    aiter_triton_mxfp4_bf16 flydsl hpc emulation rdna3
"""


def _one_of(*names: str) -> tuple[Any, str]:
    """One of these names, and null."""
    return Literal[names] | None, "one of " + ", ".join(names)


COMMON: Mapping[str, tuple[Any, str]] = {
    "attention_backend": _TEXT,
    "code_revision": _TEXT,
    "disable_eagle_block_drop": _BOOL,
    "disable_padded_drafter_batch": _BOOL,
    "draft_load_config": (Mapping[str, Any] | None, "an object"),
    "draft_model_config": _ANY,
    "draft_parallel_config": _ANY,
    "draft_sample_method": (Literal["greedy", "probabilistic"], "greedy or probabilistic"),
    "draft_tensor_parallel_size": _FROM_1,
    "dspark_draft_topk": _FROM_1,
    "enable_adaptive_verification": _BOOL,
    "enforce_eager": _MAYBE_BOOL,
    "index_share_for_mtp_iteration": _MAYBE_BOOL,
    "kv_cache_dtype": _TEXT,
    "max_model_len": _FROM_1,
    "method": _TEXT,
    "model": _TEXT,
    "num_speculative_tokens": (Annotated[int, Field(gt=0)], "a whole number of drafts from 1 on"),
    "num_speculative_tokens_per_batch_size": (
        list[tuple[int, int, int]] | None,
        "a list of three whole numbers each",
    ),
    "parallel_drafting": _BOOL,
    "prompt_lookup_max": _FROM_1,
    "prompt_lookup_min": _FROM_1,
    "quantization": _TEXT,
    "rejection_sample_method": (
        Literal["standard", "synthetic", "block"],
        "standard, synthetic or block",
    ),
    "revision": _TEXT,
    "suffix_decoding_max_cached_requests": _INT,
    "suffix_decoding_max_spec_factor": _FLOAT,
    "suffix_decoding_max_tree_depth": _INT,
    "suffix_decoding_min_token_prob": _FLOAT,
    "synthetic_acceptance_length": (float | None, "a number"),
    "synthetic_acceptance_rates": (list[float] | None, "a list of numbers"),
    "target_model_config": _ANY,
    "target_parallel_config": _ANY,
    "tensor_parallel_size": (None, "draft_tensor_parallel_size in its place"),
    "use_heterogeneous_vocab": _BOOL,
    "use_local_argmax_reduction": _BOOL,
}
"""Key, with underscores -> what it takes in every supported vLLM, as a type and in words."""

OWN: Mapping[str, Mapping[str, tuple[Any, str]]] = {
    "0.32.0": {"moe_backend": _one_of(*_MOE.split())},
    "0.33.0": {
        "disable_lookahead_block_hashes": _BOOL,
        "draft_lm_head_quantization": (Literal["fp8", "nvfp4"] | None, "fp8 or nvfp4"),
        "fly_entropy_threshold": (Annotated[float, Field(ge=0)], "a number from 0 on"),
        "fly_entropy_top_k": (Annotated[int, Field(ge=1)], "a whole number from 1 on"),
        "fly_window_size": _FROM_1,
        "moe_backend": _one_of(*_MOE.split(), "aiter_triton_mxfp4_mxfp4"),
        "rejection_sample_method": (
            Literal["standard", "synthetic", "block", "fly"],
            "standard, synthetic, block or fly",
        ),
        "xpress_topc": (Annotated[int, Field(ge=0)] | None, "a whole number from 0 on"),
    },
}
"""The same of one version alone."""


def as_vllm_reads(spec: Mapping[str, Any], version: str) -> dict[str, Any]:
    """A speculative config with its values as vLLM takes them.

    Args:
        spec: keys with underscores. What this package's own keys hold is left to the rules.
        version: vLLM's.

    Raises:
        CheckError: ``AV-QUESTION-SPEC``: vLLM has no such key, or the value does not fit.
    """
    known = {**COMMON, **OWN.get(version, {})}
    found = dict(spec)
    for key, value in spec.items():
        if key == BLOCK or key_meant(key) is not None:
            continue
        if key not in known:
            raise _no_key(key, version, known)
        found[key] = _read(key, value, version, known[key][1])
    _fit(found)
    return found


def _fit(spec: Mapping[str, Any]) -> None:
    """What vLLM says of two keys together.

    Raises:
        CheckError: ``AV-QUESTION-SPEC``.
    """
    rates = [
        key
        for key in ("synthetic_acceptance_rates", "synthetic_acceptance_length")
        if spec.get(key) is not None
    ]
    method = spec.get("rejection_sample_method", "standard")
    if len(rates) != (method == "synthetic"):
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"rejection_sample_method is {method}, with {' and '.join(rates) or 'no rates'}",
            allowed="synthetic, with one of synthetic_acceptance_rates and "
            "synthetic_acceptance_length, or another without",
            fix="remove one, or write what is missing",
        )
    drafts = spec.get("draft_sample_method", "greedy")
    if spec.get("use_heterogeneous_vocab") and drafts != "greedy":
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"use_heterogeneous_vocab is true, and draft_sample_method {drafts}",
            allowed="drafts that are sampled greedily, which is vLLM's default",
            fix="remove one of the two",
        )


@cache
def _adapter(key: str, version: str) -> TypeAdapter[Any]:
    return TypeAdapter({**COMMON, **OWN.get(version, {})}[key][0])


def _read(key: str, value: Any, version: str, words: str) -> Any:
    try:
        return _adapter(key, version).validate_python(value)
    except ValidationError:
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"{key} in the speculative config is {shown(value)}",
            allowed=words,
            fix=f"correct it, or remove {key}",
        ) from None


def _no_key(key: str, version: str, known: Mapping[str, Any]) -> CheckError:
    near = get_close_matches(key.lower(), known, n=1)
    others = [other for other, more in OWN.items() if key in more]
    return CheckError(
        Code.QUESTION_SPEC,
        given=f"the speculative config has the key {shown(key)}"
        + (f", which is vLLM {others[0]}'s" if others else ""),
        allowed=f"the keys of vLLM {version}, such as method, model or num_speculative_tokens",
        fix=f"write {near[0]}" if near else "remove it",
    )
