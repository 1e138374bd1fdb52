"""What takes longer than a moment, shown while it runs: bars on a terminal, plain lines elsewhere.

Rule: progress goes to stderr, so that stdout holds the answer alone.
"""

import sys
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
        yield Lines()


class Lines:
    """One line for each phase, and one each five seconds while it lasts."""

    def __init__(self) -> None:
        self._title_phase = ("", "")
        self._printed = 0.0

    def __call__(self, title: str, phase: str, fraction: float | None) -> None:
        now = time.monotonic()
        if (title, phase) == self._title_phase and now - self._printed < _QUIET_SECONDS:
            return
        self._title_phase, self._printed = (title, phase), now
        done = "" if not fraction else f" {fraction:.0%}"
        print(f"{title}: {phase}{done}", file=sys.stderr, flush=True)


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
