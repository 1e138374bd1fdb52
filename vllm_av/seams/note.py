"""Carries the line of an error from a process that vLLM started to the program ``vllm``.

vLLM's front end learns only that a process died ("Engine core initialization failed"), so that
process leaves a note: a file whose name both know from the environment.

Rule: a note that cannot be left or read changes nothing; the log has the error in any case.
"""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vllm_av.errors import VllmAvError

# vLLM warns of unknown variables that begin with VLLM_.
_VARIABLE = "AV_START_ERROR_FILE"


def offer() -> None:
    """Tell the processes that this one starts where to leave a note; no file is made."""
    if _VARIABLE not in os.environ:
        name = f"vllm-av-{os.getpid()}-{secrets.token_hex(8)}"
        os.environ[_VARIABLE] = os.path.join(tempfile.gettempdir(), name)


@contextmanager
def left_by_errors() -> Iterator[None]:
    """Leave a note of an error of this package that ends the block."""
    try:
        yield
    except VllmAvError as error:
        _leave(error)
        raise


def _leave(error: VllmAvError) -> None:
    # The first of all processes stays; later ones follow from it.
    name = os.environ.get(_VARIABLE)
    if name:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with suppress(OSError), os.fdopen(os.open(name, flags, 0o600), "w") as file:
            file.write(str(error))


def take() -> str | None:
    """The note that was left, which is then gone."""
    name = os.environ.get(_VARIABLE)
    if not name:
        return None
    try:
        line = Path(name).read_text(errors="replace")
        os.unlink(name)
    except OSError:
        return None
    return line
