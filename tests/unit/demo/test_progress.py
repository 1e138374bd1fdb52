"""Progress without a terminal: a line for each phase, on stderr, and no flood."""

import pytest

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
        "adaptive: generating 50%",
    ]
    assert captured.out == ""
