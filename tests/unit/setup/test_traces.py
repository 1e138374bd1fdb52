"""``make traces``: which traces it records, and that whole ones are kept."""

from pathlib import Path

import pytest

from ci import traces
from vllm_av.errors import DemoError


def test_all_are_recorded_but_those_that_are_whole(tmp_path: Path) -> None:
    assert traces.missing([], tmp_path) == ["mtp", "eagle", "eagle3", "dflash", "dspark"]
    (tmp_path / "eagle").mkdir()
    (tmp_path / ".dflash").mkdir()  # was stopped
    assert traces.missing([], tmp_path) == ["mtp", "eagle3", "dflash", "dspark"]
    assert traces.missing(["eagle"], tmp_path) == []
    assert traces.missing(["draft-model"], tmp_path) == ["draft-model"]


def test_a_drafter_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="AV-DEMO-OPTION"):
        traces.missing(["eagel"], tmp_path)


def test_what_records_is_one_that_the_command_line_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to where the engine would start."""
    from vllm_av.cli import trace
    from vllm_av.cli.app import main

    asked: list[object] = []

    def stop(plan: object, *_: object) -> None:
        asked.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(trace, "carried_pair", lambda *arguments: arguments[:2])
    monkeypatch.setattr(trace, "record", stop)
    with pytest.raises(SystemExit):
        main(traces.command("mtp", tmp_path / "t")[1:])
    (plan,) = asked
    assert isinstance(plan, trace.Plan)
    assert plan.temperatures == traces.TEMPERATURES
    assert plan.request_steps == 65_000
    assert plan.concurrency == 64
    assert plan.everything is True
