"""Progress without a terminal: a line for each phase, on stderr, and no flood."""

import os
import pty
import subprocess
import sys
import time

import pytest

from vllm_av.demo import progress
from vllm_av.demo.progress import shown


def test_plain_lines_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with shown() as show:
        show("fixed K", "starting the engine", None)
        for done in range(100):
            show("fixed K", "generating", done / 100)
        show("adaptive", "generating", 0.5)
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "fixed K: starting the engine",
        "fixed K: generating",
        "fixed K: generating ended after 0 s",
        "adaptive: generating 50%",
        "adaptive: generating ended after 0 s",
    ]
    assert captured.out == ""


def test_a_long_phase_that_tells_nothing_is_seen_to_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.2)
    with shown() as show:
        show("fixed K", "starting the engine", None)
        time.sleep(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fixed K: starting the engine"
    assert "fixed K: starting the engine 0 s" in lines[1:-1]
    assert lines[-1].startswith("fixed K: starting the engine ended after ")


def test_bars_on_a_terminal() -> None:
    script = """
from vllm_av.demo.progress import shown
with shown() as show:
    show("fixed K", "starting", None)
    show("fixed K", "generating", 0.5)
"""
    ours, theirs = pty.openpty()
    try:
        environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
        done = subprocess.run(
            [sys.executable, "-c", script],
            stderr=theirs,
            stdout=subprocess.PIPE,
            env=environment,
            check=True,
        )
        text = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == b""
    # Both phases are there in the end, full: what came after has ended them.
    last = text.rpartition("fixed K: starting")[2]
    assert "fixed K: generating" in last
    assert last.count("━" * 24) == 2
