"""Show how far a step is: a bar on a terminal, a line every ten seconds elsewhere."""

import sys
import time
from typing import TextIO

LINE_EVERY_S = 10.0
BAR_CELLS = 24


class Progress:
    """One step's display.

    Args:
        label: such as ``[3/7] packages``.
        stream: where to print; decides between bar and lines.
    """

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self._label = label
        self._stream = stream or sys.stdout
        self._bar = self._stream.isatty()
        self._start = self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def update(self, fraction: float | None) -> None:
        """Show ``fraction`` in [0, 1], or only the time where there is no measure."""
        if self._bar:
            self._write(f"\r\033[K{self._label} {_bar(fraction)} {self.seconds:.0f} s")
        elif time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            share = "" if fraction is None else f"{fraction:.0%}, "
            self._write(f"{self._label}: {share}{self.seconds:.0f} s\n")

    def done(self, note: str = "done") -> None:
        """The step's last line."""
        start = "\r\033[K" if self._bar else ""
        self._write(f"{start}{self._label}: {note}, {self.seconds:.0f} s\n")

    def clear(self) -> None:
        """Make room for an error."""
        if self._bar:
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _bar(fraction: float | None) -> str:
    if fraction is None:
        return "..."
    full = int(BAR_CELLS * min(max(fraction, 0.0), 1.0))
    return f"[{'#' * full}{'.' * (BAR_CELLS - full)}] {fraction:4.0%}"
