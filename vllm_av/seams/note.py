"""Carries the line of an error from a process that vLLM started to the program ``vllm``.

vLLM's front end learns only that a process died ("Engine core initialization failed"), so that
process leaves a note: a file whose name it knows from the environment.

Rules:

* A note that cannot be left or read changes nothing; the log has the error in any case.
* Only a file that this process itself named is read or removed.
"""

import atexit
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vllm_av.errors import VllmAvError

# vLLM warns of unknown variables that begin with VLLM_.
_VARIABLE = "AV_START_ERROR_FILE"
_LONGEST = 1 << 16
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_offer: tuple[int, str] | None = None
"""The process that made an offer, and the file; a fork inherits its parent's."""


def offer() -> None:
    """Tell the processes that this one starts where to leave a note; no file is made."""
    global _offer
    if _own() is None:
        name = f"vllm-av-{os.getpid()}-{secrets.token_hex(8)}"
        _offer = (os.getpid(), os.path.join(tempfile.gettempdir(), name))
        atexit.register(take)
        # What was there before is another's.
        os.environ[_VARIABLE] = _offer[1]


@contextmanager
def left_by_errors() -> Iterator[None]:
    """Leave a note of an error of this package that ends the block."""
    try:
        yield
    except VllmAvError as error:
        leave(error)
        raise


def leave(error: VllmAvError) -> None:
    """Leave a note for the process that made the offer, which needs none of itself."""
    # The first of all processes stays; later ones follow from it.
    name = os.environ.get(_VARIABLE)
    if name and _own() is None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
        with suppress(OSError, ValueError), os.fdopen(os.open(name, flags, 0o600), "wb") as file:
            file.write(str(error).encode(errors="replace"))


def take() -> str | None:
    """The note that was left for this process, which is then gone."""
    name = _own()
    if name is None:
        return None
    try:
        with os.fdopen(os.open(name, os.O_RDONLY | _NO_LINK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            line = file.read(_LONGEST).decode(errors="replace")
        os.unlink(name)
    except OSError:
        return None
    return line


def _own() -> str | None:
    return _offer[1] if _offer is not None and _offer[0] == os.getpid() else None
