"""Targets and drafters as a check sees them: a ``config.json`` and a list of tensors, no weights.

The configs stand for published models, written down and not fetched; drafters of SmolLM2 are the
carried ones.
"""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "vllm_av/data"
PUBLISHED = Path(__file__).parents[1] / "configs"
REWRITTEN = ("deepseek-v3.2", "gemma-4-31b", "glm-5", "gpt-oss-120b")
"""Targets whose configs vLLM has rules of its own for."""
DRAFTERS = {
    "draft_model": "smollm2-draft",
    "eagle": "smollm2-eagle",
    "eagle3": "smollm2-eagle3",
    "dflash": "smollm2-dflash",
    "dspark": "smollm2-dspark",
}
"""vLLM's method -> a drafter for the target ``smollm2``."""

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA_8B = _LLAMA | {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "smollm2": _LLAMA
    | {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
    },
    "llama": _LLAMA_8B,
    "llama-eagle3": _LLAMA_8B
    | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
    "mixtral": _LLAMA
    | {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "sliding_window": None,
    },
    "mixtral-draft": _LLAMA
    | {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "rope_theta": 10000.0,
    },
}
_TENSORS = ["lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"]
_OF_DRAFTERS = ["d2t", "fc.weight", "lm_head.weight", "norm.weight"]


def write(folder: Path) -> dict[str, Path]:
    """Write every checkpoint below ``folder``; name -> its folder."""
    carried = {
        name: json.loads((DATA / name / "config.json").read_text()) for name in DRAFTERS.values()
    }
    carried |= {
        name: json.loads((PUBLISHED / name / "config.json").read_text()) for name in REWRITTEN
    }
    # Around its language model vLLM's code needs a library for images.
    text = carried["gemma-4-31b"]["text_config"]
    carried["gemma-4-31b"] = text | {"architectures": ["Gemma4ForCausalLM"]}
    headless = carried["smollm2-dspark"] | {"enable_confidence_head": False}
    carried["smollm2-dspark-headless"] = headless
    for name, config in (CONFIGS | carried).items():
        own = folder / name
        own.mkdir()
        (own / "config.json").write_text(json.dumps(config))
        # As in the cache, where a carried drafter is given the target's rows for its vocabulary.
        tensors = _OF_DRAFTERS if "draft_vocab_size" in config else _TENSORS
        if config.get("enable_confidence_head"):
            tensors = [*tensors, "confidence_head.proj.weight"]
        index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "model.safetensors")}
        (own / "model.safetensors.index.json").write_text(json.dumps(index))
    return {name: folder / name for name in CONFIGS | carried}
