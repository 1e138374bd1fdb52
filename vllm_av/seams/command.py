"""Lets the program ``vllm`` end in one line where an error of this package ends it.

``vllm serve`` catches nothing around its start, so that a mistake in a config would end in a
traceback through all of vLLM.

Rule: only in that program, and only for errors of this package. In a user's own program an
exception is his.
"""

import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from vllm_av.errors import Code, VllmAvError
from vllm_av.seams import note

_TOLD_WITH_CAUSE = (Code.SCORER_FAILED, Code.SCORER_BROKEN)
_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def connect() -> None:
    """Put a hook before Python's own; again is fine."""
    if in_program() and not isinstance(sys.excepthook, _LastLine):
        sys.excepthook = _LastLine(sys.excepthook)


def in_program() -> bool:
    """Whether this process is the command ``vllm`` or a module of vLLM's run by ``python -m``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None:
        return str(spec.name).partition(".")[0] == "vllm"
    return bool(sys.argv) and Path(sys.argv[0]).name in ("vllm", "vllm.exe")


class _LastLine:
    """The hook: tells an error of this package, leaves every other to ``before``."""

    def __init__(self, before: _Hook) -> None:
        self._before = before

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        line = note.take()
        if isinstance(error, VllmAvError):
            # The fault is in another's code, which the line does not show.
            cause = error.__cause__ if error.code in _TOLD_WITH_CAUSE else None
            _say(str(error), cause)
            return
        self._before(kind, error, trace)
        if line:
            _say(line)


def _say(line: str, cause: BaseException | None = None) -> None:
    with suppress(OSError, ValueError, AttributeError):  # nobody listens
        if cause is not None:
            traceback.print_exception(cause, file=sys.stderr)
        print(f"error: {line}", file=sys.stderr, flush=True)
