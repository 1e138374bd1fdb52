"""The program ``vllm-av``: runs the command, and ends in one line whatever goes wrong.

Rule: nothing but the standard library is needed to say what went wrong.
"""

import errno
import json
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

from vllm_av.errors import Code, SetupError, VllmAvError

EXIT_MISTAKE = 2
EXIT_FAULT = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run :func:`vllm_av.cli.app.main` and leave with its exit code.

    2 where its dependencies are missing or the answer cannot be written; 70 for a fault of ours.
    """
    if sys.stdout is None:
        # Python writes to a closed one in silence, and the next file opened would take its place.
        _say(_unwritable("it is closed"))
        raise SystemExit(EXIT_MISTAKE)
    try:
        from vllm_av.cli.app import main as command
    except ImportError as error:
        _say(_cannot_be_loaded(error))
        raise SystemExit(EXIT_MISTAKE) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    try:
        command()
    except Exception as error:
        if _is_stdout(error):
            # Python's own flush at exit must not complain again.
            sys.stdout = None
            _say(_unwritable(error))
            raise SystemExit(EXIT_MISTAKE) from None
        _say(_fault(error))
        raise SystemExit(EXIT_FAULT) from None


def _say(error: VllmAvError) -> None:
    # Where nobody can be told, the exit code still tells.
    with suppress(OSError, ValueError):
        if "--json" in sys.argv and sys.stdout is not None:
            print(json.dumps({"error": error.as_dict()}, indent=2, sort_keys=True), flush=True)
        elif sys.stderr is not None:
            print(f"error: {error}", file=sys.stderr, flush=True)


def _cannot_be_loaded(why: ImportError) -> SetupError:
    return SetupError(
        Code.VERB_IMPORT,
        given=f"the command `vllm-av` cannot be loaded ({why})",
        allowed="an environment that holds vllm_av's dependencies, which come with vLLM",
        fix="install vLLM here, or run: pip install numpy pydantic rich typer",
    )


def _is_stdout(error: Exception) -> bool:
    """Whether what failed was the writing of the answer: the error names no file."""
    return isinstance(error, OSError) and error.filename is None and error.errno == errno.ENOSPC


def _unwritable(why: object) -> SetupError:
    return SetupError(
        Code.STDOUT,
        given=f"the answer cannot be written ({why})",
        allowed="a standard output that takes it",
        fix="free the disk, or write it elsewhere",
    )


def _fault(error: Exception) -> SetupError:
    return SetupError(
        Code.INTERNAL,
        given=f"{type(error).__name__}: {error}",
        allowed="no such error",
        fix=f"report it with {_written(error)} and the output of `vllm-av doctor --json`",
    )


def _written(error: Exception) -> str:
    text = "".join(traceback.format_exception(error))
    try:
        folder = Path(tempfile.mkdtemp(prefix="vllm-av-"))
        file = folder / "traceback.txt"
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError:
        return f"this: {text}"
    return str(file)
