"""A line that somebody pasted: flags alone, ``vllm serve`` with what stands before it, or all of it
between quotes.

Rule: what a shell would have taken for itself is taken off, never read as a flag of vLLM's; a line
that starts something else is a mistake.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.flags.command import ASSIGNMENT, Served, serve_arguments

_CONTAINERS = ("docker", "nerdctl", "podman")
_STARTERS = (
    *_CONTAINERS,
    *("accelerate", "bash", "kubectl", "mpirun", "nsys", "numactl", "ray", "sh", "srun", "taskset"),
    *("torchrun", "uv"),
)
_BEFORE = ("env", "exec", "nohup", "sudo", "time")
_PYTHON = re.compile(r"python[\d.]*")
_IMAGE = re.compile(r"(?:[\w.-]+(?::\d+)?/)*vllm-openai[\w.-]*(?::[\w.-]+)?(?:@sha256:\w+)?")
_SERVER = re.compile(r"\bvllm\b.*\bserve\b|vllm-openai|vllm\.entrypoints", re.DOTALL)
_SHELL = re.compile(r"[&|;]+|\d?&?>.*|#.*|<.*", re.DOTALL)
"""What ends a command, or says where its output goes."""


def pasted(words: Sequence[str]) -> Served:
    """The flags in a line, and the variables that it sets.

    Args:
        words: as a shell handed them over.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: it starts something else than a server of vLLM.
    """
    line = list(_unquoted(words))
    if (found := serve_arguments(line)) is not None:
        return found
    name = PurePath(next((word for word in line if not _leads(word)), "")).name
    if not line or not (_leads(line[0]) or name in _STARTERS or _PYTHON.fullmatch(name)):
        return Served(tuple(line), {})
    if (found := _started(line)) is not None:
        return found
    raise _no_server(f"a command line of {shown(name)} that holds no `vllm serve`")


def _leads(word: str) -> bool:
    return word in _BEFORE or ASSIGNMENT.fullmatch(word) is not None


def _unquoted(words: Sequence[str]) -> Iterator[str]:
    """The words, those of a line within quotes one by one, without the ends of lines."""
    for place, word in enumerate(words):
        whole = place == 0 or re.fullmatch(r"-l?c", words[place - 1])
        if whole and re.search(r"\s", word) and _SERVER.search(word):
            yield from _of_a_shell(word)
        elif word.strip() != "\\":  # it ended a line, and a space stood behind it
            yield word.lstrip() if word.lstrip().startswith("-") else word


def _of_a_shell(text: str) -> Iterator[str]:
    text = re.sub(r"\\[ \t]*\r?\n", " ", text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _no_server(f"a line that no shell would take ({error})") from None
    served = False
    for word in words:
        # Behind the server a shell's own words end the line; before it they part commands.
        if served and _SHELL.fullmatch(word):
            return
        if served and word.endswith(";"):
            yield word.rstrip(";")
            return
        served = served or word == "serve" or _IMAGE.fullmatch(word) is not None
        yield word if served else word.rstrip(";")


def _started(line: list[str]) -> Served | None:
    """The server behind flags that are not vLLM's."""
    for place in range(len(line)):
        served = serve_arguments(line[place:])
        if served is not None:
            before = line[: len(line) - len(served.args)]
            return Served(served.args, dict(_variables(before)))
    for place, word in enumerate(line):
        before = line[:place]
        if _IMAGE.fullmatch(word) and any(PurePath(each).name in _CONTAINERS for each in before):
            return Served(tuple(line[place + 1 :]), dict(_variables(before)))
    return None


def _variables(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """``V=0``, also behind ``-e`` and ``--env``, and joined to either."""
    for word in words:
        plain = re.sub(r"^(--env=|-e=?)(?=[A-Za-z_]\w*=)", "", word)
        if found := ASSIGNMENT.fullmatch(plain):
            yield found[1], found[2]


def _no_server(given: str) -> CheckError:
    return CheckError(
        Code.QUESTION_FLAG,
        given=given,
        allowed="a model and its flags, or a command line with `vllm serve` in it",
        fix="paste what follows `vllm serve`",
    )
