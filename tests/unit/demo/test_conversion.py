"""The conversion: exact on a small model, plausible text and tokens from SmolLM2 itself."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.demo import conftest as size
from tests.unit.demo.conftest import Floats
from vllm_av.demo.checkpoint import converted, weights
from vllm_av.demo.conversion import unpermute
from vllm_av.errors import Code, DemoError

_TEXT = "The capital of France is"


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AV_CACHE", str(tmp_path_factory.mktemp("cache")))
        return converted(weights(), lambda _: None)


def _permuted(weight: Floats, heads: int) -> Floats:
    """What llama.cpp's converter does to q and k (``LlamaModel.permute``)."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def test_a_model_survives_the_way_to_gguf_and_back(tmp_path: Path) -> None:
    """Exactly: all weights are bfloat16 numbers to begin with."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=size.VOCABULARY,
        hidden_size=size.HIDDEN,
        intermediate_size=size.FEED_FORWARD,
        num_hidden_layers=2,
        num_attention_heads=size.HEADS,
        num_key_value_heads=size.KV_HEADS,
        head_dim=size.HEAD_DIM,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
    )
    original = LlamaForCausalLM(config)
    # Weights large enough that attention depends on the positions of q and k.
    for parameter in original.parameters():
        parameter.data.normal_().mul_(0.3).copy_(parameter.data.bfloat16())
    state = {name: value.numpy() for name, value in original.model.state_dict().items()}
    names = {
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
    tensors = {
        "token_embd.weight": state["embed_tokens.weight"],
        "output_norm.weight": state["norm.weight"],
    }
    for layer in range(2):
        for theirs, ours in names.items():
            value = state[f"layers.{layer}.{ours}.weight"]
            heads = {"attn_q": size.HEADS, "attn_k": size.KV_HEADS}.get(theirs)
            tensors[f"blk.{layer}.{theirs}.weight"] = _permuted(value, heads) if heads else value
    folder = converted(size.write_gguf(tmp_path / "model.gguf", tensors), lambda _: None)
    back = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.arange(3, 40)[None]
    with torch.inference_mode():
        torch.testing.assert_close(back(ids).logits, original(ids).logits, rtol=0, atol=1e-5)


def test_it_writes_text(smollm2: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    ids = tokenizer(_TEXT, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=8, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0])


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n\treturn x ** 2  # squares\n",
        "In 1989, 3.14159 times 2 is about 6.28.",
        "Zürich, naïve café, 北京, 🙂",
        "   leading and trailing   ",
    ],
)
def test_text_survives_the_tokenizer(smollm2: Path, text: str) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_digits_are_tokens_of_their_own(smollm2: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    assert tokenizer.encode("in 2024").tokens == ["in", "Ġ", "2", "0", "2", "4"]


def test_the_chat_template_ends_where_the_answer_begins(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.eos_token == "<|im_end|>"
    # Control tokens are one token each, wherever they stand.
    assert tokenizer(text)["input_ids"].count(tokenizer.eos_token_id) == 2


def test_the_config_holds_what_the_file_states(smollm2: Path) -> None:
    config = json.loads((smollm2 / "config.json").read_text())
    expected = {
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "max_position_embeddings": 8192,
        "eos_token_id": 2,
    }
    assert {key: config[key] for key in expected} == expected


def test_unpermute_puts_the_rotary_halves_one_after_the_other() -> None:
    # Two heads of four rows; each row named by (head, element, half) in llama.cpp's order.
    rows = [100, 101, 110, 111, 200, 201, 210, 211]
    weight = np.array(rows, dtype=np.float32)[:, None]
    assert unpermute(weight, heads=2)[:, 0].tolist() == [100, 110, 101, 111, 200, 210, 201, 211]


def test_another_pre_tokenizer_is_refused(tmp_path: Path) -> None:
    source = size.write_gguf(tmp_path / "other.gguf", pre_tokenizer="llama-bpe")
    with pytest.raises(DemoError, match="llama-bpe") as caught:
        converted(source, lambda _: None)
    assert caught.value.code is Code.DEMO_CHECKPOINT
