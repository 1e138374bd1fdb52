"""Tiny checkpoints whose next-token distributions can be enumerated.

Rule: the seeds are written here; equal code makes equal checkpoints.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 8
HIDDEN = 64
_NEVER = -40.0  # logit of a token that is never drawn


def _llama(layers: int = 1) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config).float().eval()


def constant(folder: Path, probabilities: list[float]) -> str:
    """A model with these probabilities for its first tokens after any text, and 0 for the rest."""
    model = _llama()
    logits = torch.full((VOCABULARY,), _NEVER)
    logits[: len(probabilities)] = torch.tensor(probabilities).log()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name or "embed" in name else 0.0)
        # Every layer adds nothing to an embedding of ones, and its norm is ones again.
        model.lm_head.weight.copy_(logits[:, None].expand(-1, HIDDEN) / HIDDEN)
    model.save_pretrained(folder)
    return str(folder)


def random_pair(folder: Path) -> tuple[str, str]:
    """A random target, and a drafter that is the target with noise on each weight."""
    torch.manual_seed(7)
    target, draft = _llama(), _llama()
    draft.load_state_dict(target.state_dict())
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    target.save_pretrained(folder / "target")
    draft.save_pretrained(folder / "draft")
    return str(folder / "target"), str(folder / "draft")


def bigrams(target: Any) -> torch.Tensor:
    """Mean logits ``[VOCABULARY, VOCABULARY]`` after each token, over random texts before it."""
    texts = torch.randint(VOCABULARY, (256, 6))
    with torch.no_grad():
        logits = target(texts).logits[:, -1]
    last = texts[:, -1]
    return torch.stack([logits[last == token].mean(dim=0) for token in range(VOCABULARY)])


def tokenizer(folder: Path) -> None:
    """Let the model in ``folder`` have a tokenizer, which a server needs: a word for each token."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({f"t{n}": n for n in range(VOCABULARY)}, unk_token="t0"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="t0").save_pretrained(folder)


def greedy(model: str, prompt: list[int], length: int = 16) -> list[int]:
    """The likeliest continuation of ``prompt`` token by token, by transformers."""
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    text = list(prompt)
    with torch.no_grad():
        for _ in range(length):
            text.append(int(reference(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(prompt) :]


def joint(model: str, prompt: list[int], length: int, temperature: float) -> torch.Tensor:
    """Probability of each continuation of ``prompt``: float64 ``[VOCABULARY] * length``.

    Computed by transformers, one forward pass over all continuations, in float64.
    """
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64).eval()
    tails = torch.tensor(list(itertools.product(range(VOCABULARY), repeat=length)))
    text = torch.cat([torch.tensor(prompt).expand(len(tails), -1), tails], dim=1)
    with torch.no_grad():
        logits = reference(text).logits[:, len(prompt) - 1 : -1] / temperature
    chosen = logits.log_softmax(-1).gather(-1, tails[..., None]).squeeze(-1)
    probabilities = chosen.sum(dim=1).exp()
    assert math.isclose(probabilities.sum().item(), 1.0, abs_tol=1e-9)
    return probabilities.view([VOCABULARY] * length)
