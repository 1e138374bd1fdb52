"""A command line of ``vllm serve``, as a process shows it.

Rule: what stands before the flags is taken off, the variables in it are kept; nothing is run.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
"""``VAR=value``."""
_MODULES = {
    "vllm.entrypoints.openai.api_server": 0,
    "vllm.entrypoints.cli.main": 1,
}
"""Module -> how many words after it belong to the program; 1 is ``serve``."""


@dataclass(frozen=True)
class Container:
    """In what a command line starts the server, away from this environment.

    Args:
        image: of vLLM's name, as it was written; None where none is seen.
        passed: variables that it hands on from the environment here, if they are set.
        not_looked_at: flags whose files may set others.
    """

    image: str | None
    passed: tuple[str, ...] = ()
    not_looked_at: tuple[str, ...] = ()


@dataclass(frozen=True)
class Served:
    """The flags of a server, the variables that its command line sets, and its container."""

    args: tuple[str, ...]
    environment: Mapping[str, str]
    container: Container | None = None


def serve_arguments(argv: Sequence[str]) -> Served | None:
    """What follows ``vllm serve``, or the module that does the same; None where neither is there.

    ``VAR=value python3 -m vllm.entrypoints.openai.api_server --model M`` and the like.
    """
    for place, word in enumerate(argv):
        following = argv[place + 1 : place + 3]
        if PurePath(word).name == "vllm" and following[:1] == ["serve"]:
            return _served(argv, place, place + 2)
        if word == "-m" and following and following[0] in _MODULES:
            skipped = _MODULES[following[0]]
            if skipped and following[1:] != ["serve"]:
                return None
            return _served(argv, place, place + 2 + skipped)
        if word.startswith("--"):
            return None
    return None


def _served(argv: Sequence[str], before: int, after: int) -> Served:
    found = (ASSIGNMENT.fullmatch(word) for word in argv[:before])
    return Served(tuple(argv[after:]), {each[1]: each[2] for each in found if each})
