"""A process in which vLLM's backends are constructed on a GPU that is not there.

Run by the Python of a supported vLLM: ``{"gpu": ..., "caches": [...]}`` on standard input,
``[[backend, cache, what the layers are handed, vLLM's words or null], ...]`` on standard output.
"""

import json
import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from vllm_av.preflight.backends.gpus import gpu
from vllm_av.preflight.backends.pretend import pretend

IMPLS = {
    "FLASH_ATTN": "flash_attn.FlashAttentionImpl",
    "TRITON_ATTN": "triton_attn.TritonAttentionImpl",
    "FLEX_ATTENTION": "flex_attention.FlexAttentionImpl",
    "HPC_ATTN": "hpc_attn.HpcAttentionImpl",
    "TRITON_MLA": "mla.triton_mla.TritonMLAImpl",
}
HANDED: dict[str, dict[str, Any]] = {
    "": {},
    "soft_cap": {"logits_soft_cap": 50.0},
    "alibi": {"alibi_slopes": [0.5] * 32},
    "shared_kv": {"kv_sharing_target_layer_name": "another"},
}
"""Field of a group of layers -> what its layers are made with."""


def main() -> None:
    """Answer the question on standard input."""
    question = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM writes its log to standard output
    device = gpu(question["gpu"])
    assert device is not None
    pretend(device)
    hpc = ModuleType("hpc")  # which no index of packages has
    hpc.__spec__ = ModuleSpec("hpc", None)
    hpc.QuantType = SimpleNamespace(QPERTOKEN_PERHEAD_KPERTENSOR_VPERTENSOR=0)  # type: ignore[attr-defined]
    sys.modules["hpc"] = hpc
    told = [
        [name, cache, handed, _refusal(name, cache, given)]
        for name in IMPLS
        for cache in question["caches"]
        for handed, given in HANDED.items()
        if not (name == "TRITON_MLA" and handed)
    ]
    json.dump(told, answers)
    answers.close()
    os._exit(0)


def _refusal(name: str, cache: str, given: dict[str, Any]) -> str | None:
    """In vLLM's words; None where it is made."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.layers.attention import mla_attention

    def common(self: Any, heads: int, size: int, scale: float, *args: Any, **kwargs: Any) -> None:
        self.kv_cache_dtype = args[3]  # the rest of MLA is no part of the question

    mla_attention.MLACommonImpl.__init__ = common
    module, _, impl = IMPLS[name].rpartition(".")
    made = getattr(import_module(f"vllm.v1.attention.backends.{module}"), impl)
    usual = {
        "num_heads": 32,
        "head_size": 128,
        "scale": 128**-0.5,
        "num_kv_heads": 8,
        "alibi_slopes": None,
        "sliding_window": None,
        "kv_cache_dtype": cache,
        "logits_soft_cap": None,
        "attn_type": "decoder",
        "kv_sharing_target_layer_name": None,
    }
    with set_current_vllm_config(_config()):
        try:
            made(*{**usual, **given}.values())
        except (ValueError, NotImplementedError) as error:
            return str(error)
    return None


def _config() -> Any:
    """What the constructors read."""
    from vllm.config.attention import AttentionConfig

    return SimpleNamespace(
        attention_config=AttentionConfig(),
        cache_config=SimpleNamespace(cache_dtype="auto", block_size=16),
        compilation_config=SimpleNamespace(static_forward_context={}),
        model_config=None,
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, dcp_comm_backend="ag_rs", tensor_parallel_size=1
        ),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=8192, max_num_seqs=256),
    )


if __name__ == "__main__":
    main()
