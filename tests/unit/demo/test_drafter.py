"""The head that the package carries is the one its provenance describes, and fits its target."""

import hashlib
import json
import re

from vllm_av.demo.checkpoint import weights
from vllm_av.demo.drafter import carried

_SHARED_WITH_TARGET = {
    "hidden_size": "llama.embedding_length",
    "vocab_size": "llama.vocab_size",
    "rope_theta": "llama.rope.freq_base",
    "max_position_embeddings": "llama.context_length",
    "num_attention_heads": "llama.attention.head_count",
    "num_key_value_heads": "llama.attention.head_count_kv",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
}


def test_the_files_have_the_sha256_of_their_provenance() -> None:
    text = (carried("eagle") / "PROVENANCE.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^ +([0-9a-f]{64})  (\S+)$", text, re.MULTILINE)[::-1])
    found = {
        hashlib.sha256((carried("eagle") / name).read_bytes()).hexdigest(): name
        for name in ("config.json", "model.safetensors")
    }
    assert stated == found


def test_the_config_matches_the_target() -> None:
    from gguf import GGUFReader

    fields = GGUFReader(weights()).fields
    config = json.loads((carried("eagle") / "config.json").read_text(encoding="utf-8"))
    target = {key: fields[name].contents() for key, name in _SHARED_WITH_TARGET.items()}
    assert {key: config[key] for key in target} == target


def test_the_weights_are_one_layer_for_that_width() -> None:
    from safetensors import safe_open

    with safe_open(carried("eagle") / "model.safetensors", "np") as tensors:
        names = tensors.keys()
        shapes = {name: tensors.get_slice(name).get_shape() for name in names}
    assert shapes["fc.weight"] == [576, 2 * 576]
    assert {name.split(".")[1] for name in shapes if name.startswith("layers.")} == {"0"}
    assert sum(a * b for a, b in (s for s in shapes.values() if len(s) == 2)) == 4_202_496
