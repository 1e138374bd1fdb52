"""What the target is asked for the corpus, and which of it is held out from training.

* ``humaneval``, ``docs``: as :mod:`vllm_av.demo.prompts` asks them; ``docs`` of the whole library.
* ``instructions``: requests that the target invents itself, when it continues an opened turn of
  the user.
* ``code``: source of the standard library, to be continued as it stands.

Rule: what the demonstration and the figures ask is never asked for training: :func:`held_out`, and
for ``code`` a ninth of the library's files. What is too near to it is left out of what was
generated (:mod:`vllm_av.training.leakage`).
"""

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from vllm_av.demo.prompts import Prompt, choose, docs, humaneval
from vllm_av.training.library import is_held_out, library

WORKLOADS = ("humaneval", "docs", "instructions", "code")
HELD_OUT_EACH = 24
"""Held-out prompts of a workload, as many as there are plain requests in the demonstration."""

# How much of each list an instalment takes. A later one adds to what an earlier one made.
_INSTALMENTS = (
    {"docs": range(500), "instructions": range(500), "code": range(300)},
    {"docs": range(500, 2000), "instructions": range(500, 1200), "code": range(300, 800)},
)
INSTALMENTS = len(_INSTALMENTS)
# HumanEval has few problems: each is answered three times, greedily once.
_ANSWERS = (0.0, 1.0, 1.0)
_CODE_TOKENS = range(48, 113)
_LEAST_SOURCE = 3000  # bytes
_MOST_CHARACTERS = 800  # of a request: a longer one costs more than it teaches
# Tests and data: nobody's idea of code to be continued.
_NOT_LIBRARY = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "encodings"}


@dataclass(frozen=True)
class Request:
    """One sequence to be generated.

    Args:
        workload: of :data:`WORKLOADS`.
        source: what it was made from, for a reader.
        text: of the user's message; of the document where ``workload`` is ``code``; ``None`` where
            the target is to invent it.
        temperature: at which the answer is drawn.
        held_out: whether it is kept from training.
    """

    workload: str
    source: str
    text: str | None
    temperature: float
    held_out: bool = False


def requests(number: int) -> list[Request]:
    """What instalment ``number`` adds to the corpus: workloads interleaved, in one order always.

    The first instalment has HumanEval and what is held out.
    """
    take = _INSTALMENTS[number]
    groups = [
        [*_humaneval()] if number == 0 else [],
        _docs()[take["docs"].start : take["docs"].stop],
        [*_code(False, take["code"].stop)][take["code"].start :],
        [
            Request("instructions", str(place), None, _temperature(place))
            for place in take["instructions"]
        ],
    ]
    for workload in WORKLOADS if number == 0 else ():
        groups.append(
            [
                Request(workload, name, text, temperature, held_out=True)
                for name, text in held_out(workload)
                for temperature in (0.0, 1.0)
            ]
        )
    mixed = [request for group in groups for request in group]
    random.Random(number).shuffle(mixed)
    return mixed


@cache
def digest() -> str:
    """SHA-256 of all requests, which follow from the library and HumanEval as installed."""
    everything = [asdict(each) for number in range(INSTALMENTS) for each in requests(number)]
    return hashlib.sha256(json.dumps(everything).encode()).hexdigest()


def held_out(workload: str) -> list[tuple[str, str]]:
    """``(name, text)`` of the held-out prompts of ``workload``, :data:`HELD_OUT_EACH` of them."""
    if workload == "code":
        return [(r.source, str(r.text)) for r in _code(True, HELD_OUT_EACH)]
    return [(p.name, p.text) for p in _demonstrated() if p.workload == workload]


@cache
def _demonstrated() -> list[Prompt]:
    return choose(3 * HELD_OUT_EACH)


def _humaneval() -> Iterator[Request]:
    kept = {prompt.name for prompt in _demonstrated()}
    for prompt in humaneval():
        if prompt.name not in kept and len(prompt.text) <= _MOST_CHARACTERS:
            for temperature in _ANSWERS:
                yield Request(prompt.workload, prompt.name, prompt.text, temperature)


@cache
def _docs() -> list[Request]:
    """Each docstring of the library is asked about once, then once more in other words."""
    # By text: a module that another one copies from has the same docstring under another name.
    kept = "\n".join(prompt.text for prompt in _demonstrated() if prompt.workload == "docs")
    modules = [name.removesuffix(".py") for name, _ in _library()]
    asked: list[Prompt] = []
    for wording in range(2):
        found = [p for p in docs(modules, wording) if p.text.partition("\n\n")[2] not in kept]
        random.Random(1 + wording).shuffle(found)
        asked += found
    return [
        Request(prompt.workload, prompt.name, prompt.text, _temperature(number))
        for number, prompt in enumerate(asked)
    ]


def _code(held_out: bool, count: int) -> Iterator[Request]:
    files = [
        (name, path)
        for name, path in _library()
        if is_held_out(name) is held_out and path.stat().st_size >= _LEAST_SOURCE
    ]
    draw = random.Random(2 + held_out)
    for number in range(count):
        name, path = files[draw.randrange(len(files))]
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        # At a line's start, and far enough from the end; about 3.5 characters are a token.
        start = draw.randrange(max(1, len(lines) - 30))
        length = int(3.5 * draw.choice(_CODE_TOKENS))
        yield Request(
            "code", f"{name}:{start}", "".join(lines[start:])[:length], _temperature(number)
        )


def _library() -> list[tuple[str, Path]]:
    """``(name, path)`` of the standard library's files, packages one level deep."""
    # In the order of their paths' parts: the draws below follow it.
    return [
        (name, path)
        for name, path in sorted(library(), key=lambda each: each[1])
        if len(parts := Path(name).parts) <= 2
        and not _NOT_LIBRARY & set(parts)
        and not path.stem.startswith("_")
    ]


def _temperature(number: int) -> float:
    """Three in ten answers are greedy."""
    return 0.0 if number % 10 in (0, 3, 6) else 1.0
