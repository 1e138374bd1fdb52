"""Whose costs a table has: what must be equal for them to be this engine's.

Rule: every field is compared that is known on both sides, and what differs is told by name with
both values. A field that a file lacks, or has beside these, differs too.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_av.config.text import printable, shown
from vllm_av.errors import Code, CostTableError

FIELDS = {
    "target": "its name",
    "target_config": "a digest of its config",
    "target_dtype": "in which it runs",
    "target_quantization": "of its weights; null without",
    "method": "by which is drafted",
    "drafter": "its name",
    "drafter_config": "a digest of its config",
    "drafter_dtype": "in which it runs",
    "drafter_quantization": "of its weights; null without",
    "num_speculative_tokens": "K",
    "kv_cache_dtype": "of the KV cache",
    "device": "the GPU's name, or the processor's",
    "threads": "that PyTorch computes with on a CPU; null on a GPU",
    "tensor_parallel_size": "ranks that share the target",
    "draft_tensor_parallel_size": "ranks that share the drafter",
    "data_parallel_size": "ranks that a mixture of experts is spread over; 1 for other models",
    "prefill_context_parallel_size": "ranks that share a prompt",
    "decode_context_parallel_size": "ranks that share a KV cache",
    "expert_parallel": "whether experts are spread over the ranks",
    "max_num_seqs": "requests of a step, at most",
    "max_num_batched_tokens": "tokens of a step, at most",
    "max_model_len": "tokens of a request, at most; it bounds the profiled context",
    "graph_mode": "of the CUDA graphs, as they were captured",
    "capture_sizes": "tokens of the captured graphs; empty without",
    "compilation_mode": "vLLM's number for how the model is compiled",
    "attention_backends": "of the target's layers",
    "profile_context_len": "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN",
    "profile_real_rows": "VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS",
    "moe_skip_padding": "VLLM_MOE_SKIP_PADDING",
    "vllm": "its version",
    "torch": "its version, with the CUDA that it is built for",
    "driver": "the version of NVIDIA's driver; null without",
    "series": "the patches in this vLLM: the start of their digest",
}
"""The fields of an identity, in the order in which differences are told, and what they say."""
_TOLD = 3


def differences(found: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """In words.

    Args:
        found: of a file.
        here: of this engine, as far as it is known.
    """
    known = [name for name in FIELDS if name in here]
    return [
        f"{printable(name, 60)} is {shown(found.get(name))} there and {shown(here.get(name))} here"
        for name in (*known, *sorted(found.keys() - FIELDS))
        if not _same(found.get(name), here.get(name))
    ]


def require_equal(path: Path, found: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """See that a table is this engine's.

    Args:
        path: of the file.
        found: what it says.
        here: what is known of this engine.

    Raises:
        CostTableError: ``AV-COST-TABLE-OTHER``.
    """
    every = differences(found, here)
    if not every:
        return
    told = ", ".join(every[:_TOLD])
    more = f" (and {len(every) - _TOLD} more)" if len(every) > _TOLD else ""
    raise CostTableError(
        Code.COST_TABLE_OTHER,
        given=f"the cost table {printable(str(path), 300)} is of another engine: {told}{more}",
        allowed="a table that was measured with the same models, sizes, device and versions",
        fix="name another cost_table_path for this engine, or remove that file to measure anew",
    )


def _same(there: Any, here: Any) -> bool:
    """As they stand in a file, so that true is not 1."""
    return json.dumps(there) == json.dumps(here)
