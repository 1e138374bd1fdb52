"""The order of stages, and what the command line may say."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from vllm_av.training import __main__ as stages


def test_a_stage_runs_after_all_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order = []

    def imported(module: str) -> SimpleNamespace:
        return SimpleNamespace(run=lambda work: order.append((module.rpartition(".")[2], work)))

    monkeypatch.setattr(stages, "import_module", imported)
    monkeypatch.setattr(sys, "argv", ["training", "--work", str(tmp_path / "w"), "dspark"])
    stages.main()
    assert order == [(name, tmp_path / "w") for name in ("corpus", "features", "dflash", "dspark")]


def test_each_stage_is_a_module_that_runs() -> None:
    from importlib import import_module

    for name in stages.STAGES:
        module = name.replace("-", "_")
        assert callable(import_module(f"vllm_av.training.{module}").run), name


def test_a_work_folder_that_cannot_be_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["training", "--work", str(tmp_path / "file" / "w"), "mtp"])
    with pytest.raises(SystemExit):
        stages.main()
    assert capsys.readouterr().err.startswith("error: [AV-TRAINING-WRITE]")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Stages that were made, each with its folder."""
    found: list[tuple[str, Path]] = []
    monkeypatch.setattr(stages, "make", lambda stage, work: found.append((stage, work)))
    return found


@pytest.mark.parametrize(
    "words", [["--work", "{}", "draft-model"], ["draft-model", "--work", "{}"]]
)
def test_the_folder_stands_before_or_behind_the_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], made: list[tuple[str, Path]]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", *(word.format(tmp_path) for word in words)])
    stages.main()
    assert made == [("draft-model", tmp_path)]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["eagel"],
        ["draft_model"],
        ["install", "nothing"],
        ["mtp", "--work", ""],
        ["--work", " ", "mtp"],
        ["measure", "eagle", "--checkpoint", ""],
    ],
)
def test_a_wrong_command_line_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    made: list[tuple[str, Path]],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["training", *words])
    with pytest.raises(SystemExit) as ended:
        stages.main()
    assert (ended.value.code, made, list(tmp_path.iterdir())) == (2, [], [])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: [AV-USAGE]")


def test_an_interrupted_stage_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(stage: str, work: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "make", interrupted)
    monkeypatch.setattr(sys, "argv", ["training", "mtp", "--work", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        stages.main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "checkpoint"), [("eagle", "not-there"), ("mtp", "not-there"), ("eagle", None)]
)
def test_what_is_not_there_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    checkpoint: str | None,
) -> None:
    """Either a folder that is not there, or a drafter that this copy does not carry."""
    from vllm_av.demo import drafter
    from vllm_av.training import measure

    monkeypatch.setattr(drafter, "files", lambda package: tmp_path)
    monkeypatch.setattr(measure, "measure", lambda *given: pytest.fail("it was measured"))
    words = ["measure", name, *(["--checkpoint", str(tmp_path / checkpoint)] if checkpoint else [])]
    monkeypatch.setattr(sys, "argv", ["training", "--work", str(tmp_path), *words])
    with pytest.raises(SystemExit) as ended:
        stages.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: [AV-DEMO-CHECKPOINT]")
