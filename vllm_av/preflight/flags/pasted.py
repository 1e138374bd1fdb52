"""A line that somebody pasted: flags alone, ``vllm serve`` with what stands before it, or all of it
between quotes.

Rule: what a shell would have taken for itself is taken off, never read as a flag of vLLM's; a line
that starts something else is a mistake.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.flags.command import ASSIGNMENT, Container, Served, serve_arguments

_CONTAINERS = ("docker", "nerdctl", "podman")
_ELSEWHERE = (*_CONTAINERS, "kubectl")
_JSON = "--json"
_STRING = re.compile(r"-l?c")
"""Behind it a shell takes a line as one word."""
_STARTERS = (
    *_CONTAINERS,
    *("accelerate", "bash", "kubectl", "mpirun", "nsys", "numactl", "ray", "sh", "srun", "taskset"),
    *("torchrun", "uv"),
)
_BEFORE = ("env", "exec", "nohup", "sudo", "time")
_PYTHON = re.compile(r"python[\d.]*")
_IMAGE = re.compile(r"(?:[\w.-]+(?::\d+)?/)*vllm-openai[\w.-]*(?::[\w.-]+)?(?:@sha256:\w+)?")
_JOINED = re.compile(r"^(--env=|-e=?)(?=[A-Za-z_])")
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
    line = [word for word in _unquoted(words) if word != _JSON]
    if (found := serve_arguments(line)) is not None:
        return _placed(found.args, line)
    name = PurePath(next((word for word in line if not _leads(word)), "")).name
    if not line or not (_leads(line[0]) or name in _STARTERS or _PYTHON.fullmatch(name)):
        return Served(tuple(line), {})
    if (found := _started(line)) is not None:
        return found
    raise _no_server(f"a command line of {shown(name)} that holds no `vllm serve`")


def asks_for_json(words: Sequence[str]) -> bool:
    """Whether ``--json`` stands in a line between quotes, where it is nobody's but the check's."""
    try:
        return _JSON in _unquoted(words)
    except CheckError:
        return False


def _leads(word: str) -> bool:
    return word in _BEFORE or ASSIGNMENT.fullmatch(word) is not None


def _unquoted(words: Sequence[str]) -> Iterator[str]:
    """The words, those of a line within quotes one by one, without the ends of lines."""
    for place, word in enumerate(words):
        if (place == 0 or _STRING.fullmatch(words[place - 1])) and _is_line(word):
            yield from _of_a_shell(word)
        elif word.strip() != "\\":  # it ended a line, and a space stood behind it
            yield word.lstrip() if word.lstrip().startswith("-") else word


def _is_line(word: str) -> bool:
    return re.search(r"\s", word) is not None and _SERVER.search(word) is not None


def _of_a_shell(text: str) -> Iterator[str]:
    text = re.sub(r"\\[ \t]*\r?\n", " ", text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _no_server(f"a line that no shell would take ({error})") from None
    served = False
    for last, word in pairwise(("", *words)):
        if _STRING.fullmatch(last) and _is_line(word):
            yield from _of_a_shell(word)
            return
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
            return _placed(served.args, line)
    for place, word in enumerate(line):
        before = line[:place]
        if _IMAGE.fullmatch(word) and any(PurePath(each).name in _CONTAINERS for each in before):
            args = line[place + 1 :]
            if args and _STRING.fullmatch(args[0]):
                raise _no_server(
                    f"{args[0]} behind {shown(word)}, for a shell", f"paste what follows {args[0]}"
                )
            return _placed(tuple(args), line)
    return None


def _placed(args: tuple[str, ...], line: list[str]) -> Served:
    """The server, with what the words before its flags say of its variables and its container."""
    before = line[: len(line) - len(args)]
    starts = (n for n, word in enumerate(before) if PurePath(word).name in _ELSEWHERE)
    place = next(starts, len(before))
    outer = dict(_variables(before[:place]))
    if place == len(before):
        return Served(args, outer)
    words = before[place + 1 :]
    passed = dict.fromkeys(_passed(words))
    files = [word for word in words if word.partition("=")[0] == "--env-file"]
    images = [word for word in words if _IMAGE.fullmatch(word)]
    return Served(
        args,
        {name: outer[name] for name in passed if name in outer} | dict(_variables(words)),
        Container(
            image=images[-1] if images else None,
            passed=tuple(name for name in passed if name not in outer),
            not_looked_at=("--env-file",) if files else (),
        ),
    )


def _variables(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """``V=0``, also behind ``-e`` and ``--env``, and joined to either."""
    for word in words:
        if found := ASSIGNMENT.fullmatch(_JOINED.sub("", word)):
            yield found[1], found[2]


def _passed(words: Sequence[str]) -> Iterator[str]:
    """Names behind ``-e`` and ``--env``, or joined to either, without a value."""
    for last, word in pairwise(("", *words)):
        if last in ("-e", "--env") or _JOINED.match(word):
            plain = _JOINED.sub("", word)
            if re.fullmatch(r"[A-Za-z_]\w*", plain):
                yield plain


def _no_server(given: str, fix: str = "paste what follows `vllm serve`") -> CheckError:
    return CheckError(
        Code.QUESTION_FLAG,
        given=given,
        allowed="a model and its flags, or a command line with `vllm serve` in it",
        fix=fix,
    )
