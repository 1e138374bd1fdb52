"""What takes longer than a moment, shown while it runs: bars on a terminal, plain lines elsewhere.

Rule: progress goes to stderr, so that stdout holds the answer alone.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_QUIET_SECONDS = 5.0  # between plain lines of one phase


class Show(Protocol):
    """Shows ``fraction`` (None: unknown) of ``phase`` of ``title`` as done."""

    def __call__(self, title: str, phase: str, fraction: float | None) -> None: ...


@contextmanager
def shown() -> Iterator[Show]:
    """A :class:`Show` for this process's stderr."""
    if sys.stderr.isatty():
        with _bars() as show:
            yield show
    else:
        lines = Lines()
        try:
            yield lines
        finally:
            lines.close()


class Lines:
    """A line when a phase begins, one each five seconds while it lasts, one when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._title_phase: tuple[str, str] | None = None
        self._fraction: float | None = None
        self._began = self._printed = 0.0
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()

    def __call__(self, title: str, phase: str, fraction: float | None) -> None:
        with self._lock:
            if (title, phase) != self._title_phase:
                self._end_phase()
                self._title_phase, self._began = (title, phase), time.monotonic()
                self._print(f"{fraction:.0%}" if fraction else "")
            self._fraction = fraction

    def close(self) -> None:
        """End the last phase."""
        self._stopped.set()
        self._beats.join()
        self._end_phase()

    def _end_phase(self) -> None:
        if self._title_phase and (self._fraction is not None or self._seconds >= _QUIET_SECONDS):
            self._print(f"ended after {self._seconds:.0f} s")

    def _beat(self) -> None:
        while not self._stopped.wait(_QUIET_SECONDS / 10):
            with self._lock:
                if self._title_phase and time.monotonic() - self._printed >= _QUIET_SECONDS:
                    done = "" if self._fraction is None else f"{self._fraction:.0%}, "
                    self._print(f"{done}{self._seconds:.0f} s")

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _print(self, said: str) -> None:
        self._printed = time.monotonic()
        line = ": ".join(self._title_phase or ())
        print(f"{line} {said}".rstrip(), file=sys.stderr, flush=True)


@contextmanager
def _bars() -> Iterator[Show]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def end_phase() -> None:
            for task in tasks.values():
                progress.update(task, total=1.0, completed=1.0)

        def show(title: str, phase: str, fraction: float | None) -> None:
            key = f"{title}: {phase}"
            if key not in tasks:
                end_phase()
                tasks[key] = progress.add_task(key, total=None)
            if fraction is not None:
                progress.update(tasks[key], total=1.0, completed=fraction)

        yield show
        end_phase()
