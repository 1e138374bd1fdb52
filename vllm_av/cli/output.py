"""How every verb answers: text for people, one JSON object for programs, one line for errors.

Exit codes: 0 yes; 1 no (the verb ran and the answer is bad, or what it found forbade the change);
2 the question was wrong; 70 a fault of ours (:mod:`vllm_av.cli.main`).
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import typer

from vllm_av.errors import REFUSALS, VllmAvError

EXIT_NO = 1
EXIT_MISTAKE = 2


def emit(answer: dict[str, Any], *, as_json: bool, text: Callable[[], None]) -> None:
    """Print ``answer`` as JSON on stdout, or let ``text`` print it for people."""
    if as_json:
        typer.echo(json.dumps(answer, indent=2, sort_keys=True, default=str))
    else:
        text()


@contextmanager
def whoever_reads() -> Iterator[None]:
    """Let an answer that nobody reads to its end leave the exit code as it is."""
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python's own flush at exit must not complain again.
        sys.stdout = None


@contextmanager
def mistakes(*, as_json: bool) -> Iterator[None]:
    """Turn a :class:`VllmAvError` into one line and an exit code, never a traceback."""
    try:
        yield
    except VllmAvError as error:
        fail(error, as_json=as_json)


def fail(error: VllmAvError, *, as_json: bool) -> NoReturn:
    """Report ``error``; leave with exit code 2, or with 1 where it answers a right question."""
    if as_json:
        with whoever_reads():
            typer.echo(json.dumps({"error": error.as_dict()}, indent=2, sort_keys=True))
    else:
        # A reader who has gone, or a full disk, changes nothing about the exit code.
        with suppress(OSError):
            print(f"error: {error}", file=sys.stderr, flush=True)
    raise typer.Exit(EXIT_NO if error.code in REFUSALS else EXIT_MISTAKE)
