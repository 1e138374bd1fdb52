"""Hidden states go with the corpus that they were computed over."""

import json
from pathlib import Path

import numpy as np
import pytest

from vllm_av.errors import TrainingError
from vllm_av.training import features
from vllm_av.training.corpus_files import about
from vllm_av.training.features import HIDDEN, ROWS, batches, belongs
from vllm_av.training.prompts import Request
from vllm_av.training.whole import claim, digest

LENGTHS = [5, 7, 6]
SIZE = sum(LENGTHS) * ROWS * HIDDEN * 2


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A corpus of three sequences, and hidden states that have no note of it."""
    _corpus(tmp_path, token=1)
    folder = tmp_path / "features"
    folder.mkdir()
    (folder / "hidden.bin").write_bytes(bytes(SIZE))
    (folder / "done.bin").write_bytes(bytes([1]) * len(batches(np.array(LENGTHS), [0] * 3)))
    return tmp_path


def _corpus(work: Path, token: int) -> None:
    folder = work / "corpus"
    folder.mkdir(exist_ok=True)
    np.save(folder / "ids.npy", np.full(sum(LENGTHS), token, np.int32))
    np.save(folder / "offsets.npy", np.cumsum([0, *LENGTHS]))
    np.save(folder / "prompt_lengths.npy", np.full(len(LENGTHS), 2, np.int32))
    row = about(Request("docs", "a", "b", 0.0)) | {"round": 0}
    (folder / "sequences.json").write_text(json.dumps([row] * 3))


def test_whole_states_are_adopted_and_then_are_of_that_corpus_alone(work: Path) -> None:
    belongs(work)
    belongs(work)
    _corpus(work, token=2)
    with pytest.raises(TrainingError, match=r"AV-TRAINING-WORK.*hidden\.bin was made by another"):
        belongs(work)


@pytest.mark.parametrize(
    ("name", "content"),
    [("hidden.bin", bytes(SIZE - 2)), ("hidden.bin", bytes(SIZE + 2)), ("done.bin", b"\0")],
)
def test_states_of_another_size_or_not_all_done_are_refused(
    work: Path, name: str, content: bytes
) -> None:
    (work / "features" / name).write_bytes(content)
    with pytest.raises(TrainingError, match="delete"):
        belongs(work)


def test_states_that_were_cut_after_they_were_adopted_are_refused(work: Path) -> None:
    belongs(work)
    (work / "features" / "hidden.bin").write_bytes(bytes(SIZE - 2))
    with pytest.raises(TrainingError, match="delete"):
        belongs(work)


def test_a_part_that_goes_on_is_of_the_corpus_that_it_was_begun_for(work: Path) -> None:
    folder = work / "features"
    (folder / "hidden.bin").rename(folder / "hidden.bin.part")
    (folder / "done.bin").write_bytes(b"\0")
    belongs(work)
    _corpus(work, token=2)
    with pytest.raises(TrainingError, match=r"hidden\.bin\.part"):
        belongs(work)


@pytest.mark.parametrize("name", ["hidden.bin.part", "done.bin"])
def test_a_part_that_was_cut_is_not_filled_up_with_zeros(work: Path, name: str) -> None:
    folder = work / "features"
    (folder / "hidden.bin").rename(folder / "hidden.bin.part")
    belongs(work)
    (folder / name).write_bytes(b"")
    with pytest.raises(TrainingError, match=name):
        belongs(work)


def test_a_note_that_is_no_text_fits_nothing(work: Path) -> None:
    belongs(work)
    (work / "features" / "hidden.bin.sha256").write_bytes(b"\xff\xfe")
    with pytest.raises(TrainingError, match="AV-TRAINING-WORK"):
        belongs(work)


def test_a_file_that_is_not_there_can_be_made_anew_from_something_else(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    claim(path, digest("one"))
    claim(path, digest("other"))
    path.touch()
    claim(path, digest("other"))
    with pytest.raises(TrainingError):
        claim(path, digest("one"))


def test_what_is_computed_outlives_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _corpus(tmp_path, token=1)

    def interrupted(*given: object) -> None:
        with (tmp_path / "features" / "hidden.bin.part").open("r+b") as file:
            file.write(b"computed")
        raise KeyboardInterrupt

    monkeypatch.setattr(features, "together", interrupted)
    with pytest.raises(KeyboardInterrupt):
        features.run(tmp_path)
    monkeypatch.setattr(features, "together", lambda *given: None)
    features.run(tmp_path)
    assert (tmp_path / "features" / "hidden.bin").read_bytes()[:9] == b"computed\0"
