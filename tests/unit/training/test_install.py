"""What goes from a work folder into the package: a whole drafter, or nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.training.made import eagle
from vllm_av.errors import Code, TrainingError
from vllm_av.training import install as installing
from vllm_av.training.install import install

NAMES = ["config.json", "model.safetensors", "training.json"]


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the package carries its EAGLE head, an earlier one."""
    monkeypatch.setattr(installing, "files", lambda name: tmp_path / "package")
    folder = eagle(tmp_path / "package" / "data" / "smollm2-eagle", fill=1.0)
    (folder / "PROVENANCE.md").write_text("of the earlier one")
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = eagle(tmp_path / "work" / "smollm2-eagle", fill=2.0)
    (folder / "state.pt").write_text("a state")
    return tmp_path / "work"


def _content(folder: Path) -> dict[str, bytes | None]:
    return {each.name: each.read_bytes() if each.is_file() else None for each in folder.iterdir()}


def test_installing_takes_what_a_drafter_is_and_how_it_was_made_and_leaves_the_rest(
    carried: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("eagle", work)
    found = _content(carried)
    assert found.pop("PROVENANCE.md") == b"of the earlier one"
    assert found == {name: (work / "smollm2-eagle" / name).read_bytes() for name in NAMES}
    (line,) = capsys.readouterr().out.splitlines()
    assert "model.safetensors" in line
    assert "ci." not in line


def test_in_a_checkout_it_says_what_is_to_be_written_then(
    carried: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (carried.parents[2] / "ci").mkdir()
    (carried.parents[2] / "ci" / "provenance.py").touch()
    install("eagle", work)
    (line,) = capsys.readouterr().out.splitlines()
    assert "python -m ci.provenance eagle" in line
    assert "python -m ci.acceptance" in line


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def _of_another(file: Path) -> None:
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"architectures": ["Eagle3LlamaForCausalLM"]}))


def _of_another_size(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"intermediate_size": 7}))


def _without_a_digest(file: Path) -> None:
    file.write_text("{}")


def _empty(file: Path) -> None:
    file.write_text("")


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("training.json", Path.unlink),
        ("training.json", _empty),
        ("training.json", _without_a_digest),
        ("config.json", Path.unlink),
        ("config.json", _without_a_digest),
        ("config.json", _of_another),
        ("config.json", _of_another_size),
        ("model.safetensors", Path.unlink),
        ("model.safetensors", _empty),
        ("model.safetensors", _cut),
    ],
)
def test_what_is_not_whole_is_not_installed(
    carried: Path, work: Path, name: str, broken: Callable[[Path], None]
) -> None:
    before = _content(carried)
    broken(work / "smollm2-eagle" / name)
    with pytest.raises(TrainingError, match="a drafter that is whole") as refused:
        install("eagle", work)
    assert refused.value.code is Code.TRAINING_NOTHING
    assert name in refused.value.given
    assert refused.value.fix.endswith(f"python -m vllm_av.training eagle --work {work}")
    assert _content(carried) == before


def test_a_drafter_that_is_not_trained_names_its_own_stage(carried: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"vllm_av\.training draft-model --work"):
        install("draft-model", tmp_path)
    assert list(carried.parent.iterdir()) == [carried]


def test_where_one_file_cannot_be_written_none_is(carried: Path, work: Path) -> None:
    (carried / "model.safetensors").unlink()
    (carried / "model.safetensors").mkdir()
    before = _content(carried)
    with pytest.raises(TrainingError, match="AV-TRAINING-WRITE") as refused:
        install("eagle", work)
    assert "model.safetensors" in refused.value.given
    assert _content(carried) == before


def test_a_full_disk_leaves_the_earlier_drafter(
    carried: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = installing.shutil.copyfile

    def full(source: Path, target: Path) -> None:
        copied(source, target)
        if target.name.startswith("model"):
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr(installing.shutil, "copyfile", full)
    before = _content(carried)
    with pytest.raises(TrainingError, match=r"AV-TRAINING-WRITE.*No space left"):
        install("eagle", work)
    assert _content(carried) == before


def test_a_new_drafter_that_cannot_be_written_leaves_no_folder(
    carried: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in carried.iterdir():
        file.unlink()
    carried.rmdir()

    def full(source: Path, target: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(installing.shutil, "copyfile", full)
    with pytest.raises(TrainingError, match="AV-TRAINING-WRITE"):
        install("eagle", work)
    assert not carried.exists()


def test_the_weights_get_their_name_last(
    carried: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = []
    replace = Path.replace

    def told(part: Path, final: Path) -> Path:
        named.append(final.name)
        return replace(part, final)

    monkeypatch.setattr(Path, "replace", told)
    install("eagle", work)
    assert (sorted(named), named[-1]) == (NAMES, "model.safetensors")


def test_a_new_drafter_that_is_cut_short_between_two_names_is_told(
    carried: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in carried.iterdir():
        file.unlink()
    carried.rmdir()
    replace = Path.replace

    def refused(part: Path, final: Path) -> Path:
        if final.name == "model.safetensors":
            raise PermissionError(13, "Permission denied", str(part), None, str(final))
        return replace(part, final)

    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(TrainingError, match=r"AV-TRAINING-WRITE.*Permission denied"):
        install("eagle", work)
    assert sorted(file.name for file in carried.iterdir()) == ["config.json", "training.json"]
