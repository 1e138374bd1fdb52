"""Folders of models as the check reads them: ``config.json`` and a list of tensors, no weights.

The values are the published ones.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import vllm_av

CARRIED = Path(vllm_av.__file__).parent / "data"
"""The drafters of this package, of SmolLM2's vocabulary."""

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": _LLAMA,
    "smollm2-135m": _LLAMA
    | {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "vocab_size": 49152,
    },
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "torch_dtype": "bfloat16",
        "head_dim": 128,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "max_position_embeddings": 40960,
        "vocab_size": 151936,
    },
    "deepseek-v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "torch_dtype": "bfloat16",
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "max_position_embeddings": 163840,
        "vocab_size": 129280,
    },
    "deepseek-v3.2": {
        "architectures": ["DeepseekV32ForCausalLM"],
        "model_type": "deepseek_v32",
        "torch_dtype": "bfloat16",
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "index_head_dim": 128,
        "index_n_heads": 64,
        "index_topk": 2048,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "max_position_embeddings": 163840,
        "vocab_size": 129280,
    },
    "gemma-3-1b": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "torch_dtype": "bfloat16",
        "head_dim": 256,
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "num_attention_heads": 4,
        "num_hidden_layers": 26,
        "num_key_value_heads": 1,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 32768,
        "vocab_size": 262144,
    },
    "unheard-of": _LLAMA | {"architectures": ["UnheardOfForCausalLM"], "model_type": "unheard_of"},
    "eagle-llama": _LLAMA | {"num_hidden_layers": 1},
    "eagle3-llama": _LLAMA
    | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32000,
    },
    "dspark-qwen3": {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "block_size": 7,
        "enable_confidence_head": True,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_hidden_layers": 5,
        "num_key_value_heads": 8,
        "max_position_embeddings": 40960,
        "vocab_size": 128256,
        "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 29]},
    },
    "xpress-qwen3": {
        "architectures": ["Qwen3XPressModel"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "block_size": 16,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_hidden_layers": 5,
        "num_key_value_heads": 8,
        "max_position_embeddings": 40960,
        "vocab_size": 128256,
        "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 29]},
    },
}

TENSORS = {
    "eagle-llama": ["fc.weight", "layers.0.mlp.up_proj.weight"],
    "eagle3-llama": ["fc.weight", "midlayer.mlp.up_proj.weight", "d2t", "t2d"],
    "dspark-qwen3": ["layers.0.mlp.up_proj.weight", "markov_head.markov_w1.weight"],
    "xpress-qwen3": ["layers.0.mlp.up_proj.weight"],
}
"""Of drafters; a name that ends so in a test gets more, or none at all."""


def write(folder: Path, name: str, *, tensors: Iterable[str] | None = (), **changes: Any) -> str:
    """A folder for that model; ``tensors`` beside those above, None for no list of them."""
    here = folder / name
    here.mkdir(exist_ok=True)
    (here / "config.json").write_text(json.dumps(CONFIGS[name] | changes, indent=2))
    index = here / "model.safetensors.index.json"
    if tensors is None:
        index.unlink(missing_ok=True)
    else:
        names = [*TENSORS.get(name, ["model.embed_tokens.weight"]), *tensors]
        weights = dict.fromkeys(names, "model-00001-of-00001.safetensors")
        index.write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    return str(here)
