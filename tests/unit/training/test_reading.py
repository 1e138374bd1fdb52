"""A work folder with damaged files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vllm_av.errors import TrainingError
from vllm_av.training import reading
from vllm_av.training.whole import is_made, write_state, written


@pytest.mark.parametrize("text", ["[", "[]", "", "null", "[" * 5000, "\x00"])
def test_a_record_that_is_none_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    record = tmp_path / "training.json"
    record.write_text(text)
    with pytest.raises(TrainingError, match=r"AV-TRAINING-WORK.*training\.json"):
        is_made(record, "digest")


@pytest.mark.parametrize("size", [0, 7, 300, -1])
@pytest.mark.parametrize("read", [lambda path: reading.state(path, dict), reading.tensors])
def test_a_cut_state_is_refused_by_its_name(
    tmp_path: Path, size: int, read: Callable[[Path], Any]
) -> None:
    path = tmp_path / "state.pt"
    write_state(path, {"parameters": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(TrainingError, match=r"AV-TRAINING-WORK.*state\.pt"):
        read(path)


def test_a_state_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    torch.save([1], path)
    with pytest.raises(TrainingError, match="holds a list and no dict"):
        reading.state(path, dict)


def test_a_whole_state_is_read(tmp_path: Path) -> None:
    write_state(tmp_path / "state.pt", {"step": 3})
    assert reading.state(tmp_path / "state.pt", dict) == {"step": 3}


def test_a_cut_array_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    np.save(path, np.arange(100))
    for size in (-8, 20, 0):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(TrainingError, match=r"AV-TRAINING-WORK.*ids\.npy"):
            reading.array(path)


@pytest.mark.parametrize("head", [b"\x00", b"PK\x03\x04"])
def test_an_array_with_a_damaged_header_is_refused_by_its_name(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "ids.npy"
    np.save(path, np.arange(100))
    whole = path.read_bytes()
    at = 10 if len(head) == 1 else 0
    path.write_bytes(whole[:at] + head + whole[at + len(head) :])
    with pytest.raises(TrainingError, match=r"AV-TRAINING-WORK.*ids\.npy"):
        reading.array(path)


def test_what_cannot_be_written_leaves_no_part_and_is_told(tmp_path: Path) -> None:
    final = tmp_path / "made.bin"
    final.write_bytes(b"earlier")

    def full() -> None:
        with written(final) as path:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(TrainingError, match=r"AV-TRAINING-WRITE.*made\.bin: No space left"):
        full()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [
        ("made.bin", b"earlier")
    ]
