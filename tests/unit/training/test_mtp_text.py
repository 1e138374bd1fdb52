"""The small target's text: what is in it, what is kept out of it, and its tokenizer."""

import ast
import zlib
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from vllm_av.demo.prompts import choose
from vllm_av.training import prompts, tiny_text, tiny_tokenizer


@pytest.fixture(scope="module")
def documents() -> list[str]:
    return tiny_text.documents()


@pytest.fixture(scope="module")
def tokenizer(documents: list[str]) -> Tokenizer:
    return tiny_tokenizer.trained(documents[:400], 400)


def test_what_is_asked_is_in_no_document(documents: list[str]) -> None:
    everything = " ".join("\n".join(documents).split())
    asked = [prompt for prompt in choose(72) if prompt.workload == "docs"]
    assert len(asked) == 24
    for prompt in asked:
        # However it is indented.
        text = " ".join(prompt.text.partition("\n\n")[2].split())
        assert text not in everything, prompt.name
    problems = [prompt for prompt in choose(72) if prompt.workload == "humaneval"]
    assert len(problems) == 24
    for prompt in problems:
        text = " ".join(prompt.text.split())
        assert text not in everything, prompt.name


def test_held_out_files_are_in_no_document(documents: list[str]) -> None:
    files = dict(tiny_text.files())
    kept = [name for name in files if zlib.crc32(name.encode()) % 9 == 0]
    assert 0.05 < len(kept) / len(files) < 0.2
    whole = set(documents)
    for name in kept:
        source = files[name].read_text(encoding="utf-8")
        assert len(source) < 200 or source not in whole, name
    for name, text in prompts.held_out("code"):
        assert zlib.crc32(name.rpartition(":")[0].encode()) % 9 == 0
        assert not any(text in document for document in documents), name


def test_a_removed_function_leaves_source_that_parses() -> None:
    source = (
        "import a\n\n\n@a.b\ndef one():\n    '''Doc.'''\n    return 1\n\n\ndef two():\n    pass\n"
    )
    node = ast.parse(source).body[1]
    assert isinstance(node, ast.FunctionDef)
    assert tiny_text._without(source, [node]) == "import a\n\n\n\n\ndef two():\n    pass\n"


def test_a_question_shows_a_method_as_a_function() -> None:
    source = (
        "class Bag:\n"
        "    def put(self, thing):\n"
        '        """Put the thing into the bag, where it stays."""\n'
        "        self.things.append(thing)\n"
    )
    node = ast.parse(source).body[0].body[0]  # type: ignore[attr-defined]
    *_, completion = tiny_text._chats("bags.py", source, node)
    asked, _, answer = completion.partition(tiny_text.ASSISTANT)
    function = (
        'def put(self, thing):\n    """Put the thing into the bag, where it stays.\n    """\n'
    )
    assert asked == (f"{tiny_text.USER}Complete this Python function.\n```python\n{function}```")
    assert answer == f"```python\n{function}    self.things.append(thing)\n```"


@pytest.mark.parametrize(
    "text", ["def f(x):\n\treturn x  # ä, 数\r\n", "  <|user", "a\x00b", "1234567890", "   \n\n  x"]
)
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_documents_come_back(tokenizer: Tokenizer, documents: list[str]) -> None:
    for document in documents[500:520]:
        ids = tokenizer.encode(document).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == document
    assert tokenizer.get_vocab_size() == 400


def test_a_chat_is_rendered_as_it_is_trained(tokenizer: Tokenizer, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tiny_tokenizer.save(tokenizer, tmp_path, 2048)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "Because."},
        {"role": "user", "content": "Why?"},
    ]
    text = loaded.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    assert text == (
        "<|user|>Be brief.<|user|>Why?<|assistant|>Because.<|endoftext|><|user|>Why?<|assistant|>"
    )
    ids = loaded.encode(text)
    assert (ids[0], ids[-1], loaded.eos_token_id) == (1, 2, tiny_tokenizer.END_ID)
    assert ids.count(tiny_tokenizer.END_ID) == 1
