"""The order of stages, and what goes from a work folder into the package."""

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
        assert callable(import_module(f"vllm_av.training.{name}").run), name


def test_installing_takes_what_a_drafter_is_and_how_it_was_made_and_leaves_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "package"
    monkeypatch.setattr(stages, "files", lambda name: package)
    made = tmp_path / "work" / "smollm2-eagle3"
    made.mkdir(parents=True)
    kept = ["config.json", "model.safetensors", "training.json"]
    for file in (*kept, "state.pt"):
        (made / file).write_text(file)
    stages.install("eagle3", tmp_path / "work")
    carried = package / "data" / "smollm2-eagle3"
    assert sorted(file.name for file in carried.iterdir()) == kept
    assert (carried / "config.json").read_text() == "config.json"


def test_what_is_not_whole_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "package"
    monkeypatch.setattr(stages, "files", lambda name: package)
    made = tmp_path / "smollm2-eagle3"
    made.mkdir()
    (made / "model.safetensors").write_text("half a training")
    monkeypatch.setattr(sys, "argv", ["training", "--work", str(tmp_path), "install", "eagle3"])
    with pytest.raises(SystemExit) as ended:
        stages.main()
    assert ended.value.code == 2
    assert not package.exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: [AV-TRAINING-NOTHING]")


def test_a_work_folder_that_cannot_be_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["training", "--work", str(tmp_path / "file" / "w"), "mtp"])
    with pytest.raises(SystemExit):
        stages.main()
    assert capsys.readouterr().err.startswith("error: [AV-TRAINING-WRITE]")
