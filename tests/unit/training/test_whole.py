"""Several files that get their final names after all of them are written."""

from pathlib import Path

import pytest

from vllm_av.errors import Code, TrainingError
from vllm_av.training.whole import all_written


@pytest.fixture
def finals(tmp_path: Path) -> list[Path]:
    """Three files of an earlier time."""
    made = [tmp_path / name for name in ("c", "a", "b")]
    for final in made:
        final.write_text("earlier")
    return made


def _write(finals: list[Path]) -> None:
    with all_written(*finals) as parts:
        for part in parts:
            assert [final.read_text() for final in finals] == ["earlier"] * 3
            part.write_text("new")


def test_none_is_renamed_before_all_are_written(finals: list[Path]) -> None:
    _write(finals)
    assert {path.name: path.read_text() for path in finals[0].parent.iterdir()} == {
        "a": "new", "b": "new", "c": "new"
    }  # fmt: skip


def test_a_part_that_is_not_written_leaves_all_as_they_were(finals: list[Path]) -> None:
    def full() -> None:
        with all_written(*finals) as parts:
            parts[0].write_text("new")
            raise OSError(28, "No space left on device", str(parts[1]))

    with pytest.raises(TrainingError, match="No space left") as caught:
        full()
    assert caught.value.code is Code.TRAINING_WRITE
    assert sorted(path.name for path in finals[0].parent.iterdir()) == ["a", "b", "c"]
    assert [final.read_text() for final in finals] == ["earlier"] * 3


def test_an_error_between_the_names_leaves_the_later_ones_as_they_were(
    finals: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def refused(part: Path, final: Path) -> Path:
        if final == finals[1]:
            raise PermissionError(13, "Permission denied", str(part), None, str(final))
        return replace(part, final)

    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(TrainingError, match="Permission denied"):
        _write(finals)
    assert [final.read_text() for final in finals] == ["new", "earlier", "earlier"]
    assert not list(finals[0].parent.glob("*.part"))
