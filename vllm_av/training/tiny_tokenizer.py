"""The small target's tokenizer: byte-level BPE of a small vocabulary, with a chat template.

Rule: any text goes through it and back unchanged; it knows three tokens that text never makes.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vllm_av.training.tiny_text import ASSISTANT, END, USER

SPECIAL = (END, USER, ASSISTANT)
"""Their numbers are 0, 1 and 2."""
END_ID = 0

# Whoever is not the assistant speaks as the user: the model knows two voices.
_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    f"{ASSISTANT}{{{{ message['content'] }}}}{END}"
    "{% else %}"
    f"{USER}{{{{ message['content'] }}}}"
    "{% endif %}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
)


def trained(texts: Iterable[str], vocabulary: int) -> Any:
    """A ``tokenizers.Tokenizer`` of exactly ``vocabulary`` tokens, learnt from ``texts``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save(tokenizer: Any, folder: Path, positions: int) -> None:
    """Write what transformers and vLLM load; ``positions`` is the longest text of the model."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
