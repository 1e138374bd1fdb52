"""``vllm-av trace report``: read a trace, make the page, write it whole.

Rule: a page replaces nothing but a page, and is whole under its name or not there.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_av.config.model import ONLINE
from vllm_av.config.text import shown
from vllm_av.errors import Code, TraceError
from vllm_av.replay.report.build import build
from vllm_av.replay.report.model import Report
from vllm_av.replay.report.page import render
from vllm_av.replay.report.says import sentences
from vllm_av.replay.trace import read

VERSION = 1
"""Of the JSON; a key is added under the same version, and changes its meaning under none."""

_BEGINS = b"<!doctype html"


@dataclass(frozen=True)
class Made:
    """A report and its page.

    Attributes:
        report: what it says.
        page: the file.
        bytes: its size.
        seconds: reading included.
    """

    report: Report
    page: Path
    bytes: int
    seconds: float

    @property
    def says(self) -> list[str]:
        """The report in a few lines."""
        return sentences(self.report)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "version": VERSION,
            "page": str(self.page),
            "bytes": self.bytes,
            "seconds": self.seconds,
            "says": self.says,
            **self.report.as_dict(),
        }


def make(
    path: Path, out: Path | None = None, scorer: str = ONLINE, assignments: Sequence[str] = ()
) -> Made:
    """Make the page about a trace.

    Args:
        path: of the trace.
        out: of the page; None: the trace's name with ``.html`` in the current folder.
        scorer, assignments: see :func:`vllm_av.replay.report.build.build`.

    Raises:
        TraceError: the trace, or what is asked, is not as it must be; ``AV-TRACE-REPORT`` where the
            page cannot be written.
        ConfigError: a setting is wrong.
    """
    began = time.perf_counter()
    page = out or Path(f"{path.resolve().stem or 'trace'}.html")
    _check(page)  # before the work and not after it
    report = build(read(path), scorer, assignments)
    content = render(report).encode()
    _write(page, content)
    return Made(report, page, len(content), time.perf_counter() - began)


def _check(page: Path) -> None:
    try:
        page.absolute().parent.stat()
        if page.exists() and not (page.is_file() or page.is_dir()):
            raise _refused(page, "it is no file")  # a pipe would be waited for
        with suppress(FileNotFoundError), page.open("rb") as file:
            if file.read(len(_BEGINS)).lower() != _BEGINS:
                raise _refused(page, "it exists and is no page, so it is left alone")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _refused(page, getattr(error, "strerror", None) or str(error)) from error


def _write(page: Path, content: bytes) -> None:
    part = page.with_name(f"{page.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(page)
    except OSError as error:
        raise _refused(page, error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _refused(page: Path, reason: str) -> TraceError:
    return TraceError(
        Code.TRACE_REPORT,
        given=f"the page {shown(str(page), 200)} cannot be written: {reason}",
        allowed="a file in a folder that exists, which is not there or is an older page",
        fix="give another name with --out",
    )
