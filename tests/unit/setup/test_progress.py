"""A bar on a terminal, plain lines elsewhere."""

import io

import pytest

from ci.setup import progress
from ci.setup.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_elsewhere_a_line_every_ten_seconds(clock: list[float]) -> None:
    stream = io.StringIO()
    shown = Progress("[4/7] packages", stream)
    for second in range(25):
        clock[0] = 100.0 + second
        shown.update(second / 50)
    shown.done()
    assert stream.getvalue().splitlines() == [
        "[4/7] packages: 20%, 10 s",
        "[4/7] packages: 40%, 20 s",
        "[4/7] packages: done, 24 s",
    ]


def test_without_a_measure_the_time_alone(clock: list[float]) -> None:
    stream = io.StringIO()
    shown = Progress("[6/7] imports", stream)
    clock[0] = 111.0
    shown.update(None)
    assert stream.getvalue() == "[6/7] imports: 11 s\n"


def test_on_a_terminal_one_line_that_changes(clock: list[float]) -> None:
    stream = Terminal()
    shown = Progress("[4/7] packages", stream)
    shown.update(0.5)
    assert stream.getvalue() == "\r\033[K[4/7] packages [############............]  50% 0 s"
    shown.done()
    assert stream.getvalue().endswith("\r\033[K[4/7] packages: done, 0 s\n")
