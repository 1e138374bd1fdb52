"""Questions for the tests of backends: a layer, a GPU, and nothing else of note."""

from dataclasses import replace
from typing import Any

from vllm_av.preflight.backends.gpus import gpu
from vllm_av.preflight.facts import DraftFacts, LayerGroup, LayerKind, ModelFacts, Setup

DEEPSEEK = {
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
    "index_topk": 2048,
}
"""Of DeepSeek V3.2's ``config.json``."""


def group(kind: LayerKind = LayerKind.FULL, **more: Any) -> LayerGroup:
    """Layers of that kind, of usual sizes."""
    mla = kind in (LayerKind.MLA, LayerKind.MLA_SPARSE)
    size = {"head_size": 576 if mla else 128, "num_heads": 32, "num_kv_heads": 1 if mla else 8}
    return LayerGroup(kind, 32, where="config.json", **{**size, **more})


def setup(on: str, k: int = 7, vllm: str = "0.33.0", **more: Any) -> Setup:
    """A question for that GPU."""
    target = ModelFacts("m", "LlamaForCausalLM", (), 128256, "bfloat16", 0, DEEPSEEK, "config.json")
    draft = DraftFacts("eagle3", "EAGLE-3", None, k, False, True, None, None, "config.json")
    asked = Setup(vllm, False, target, draft, gpu(on), {"num_speculative_tokens": k})
    return replace(asked, **more)
