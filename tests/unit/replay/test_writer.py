"""Writing a trace: whole parts alone, one writer a folder, and an error that ends nothing else."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from vllm_av.errors import Code, TraceError
from vllm_av.replay import writer
from vllm_av.replay.columns import COLUMNS
from vllm_av.replay.info import TraceInfo
from vllm_av.replay.trace import read
from vllm_av.replay.writer import TraceWriter, check_folder

INFO = TraceInfo(num_speculative_tokens=2, censoring="none", drafter="EAGLE")
WORDS = {"masked": ["top_k"], "workload": ["docs"]}


def block(step: int) -> dict[str, Any]:
    """One step of two requests with two drafts each."""
    rows = {name: np.zeros(4, np.float32) for name in COLUMNS}
    return rows | {
        "step": np.full(4, step),
        "request": np.array([0, 0, 1, 1]),
        "position": np.array([0, 1, 0, 1]),
        "verified": np.ones(4, bool),
        "accepted": np.array([True, False, False, False]),
        "head": np.full(4, np.nan, np.float32),
        "confidence": np.array([0.5, np.nan, 0.25, 1.0], np.float32),
        "masked": np.array([-1, -1, 0, 0], np.int32),
        "workload": np.array([0, 0, -1, -1], np.int32),
    }


class Warned(list[str]):
    def __call__(self, line: str) -> None:
        self.append(line)


def eventually(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_was_added_is_read_again(tmp_path: Path) -> None:
    warned = Warned()
    made = TraceWriter(tmp_path / "t", INFO, warned, part_rows=8)
    for step in range(5):
        made.add(block(step), WORDS)
    made.close()
    made.close()
    trace = read(tmp_path / "t")
    assert trace.info == INFO
    assert trace["step"].tolist() == [step for step in range(5) for _ in range(4)]
    assert not trace.has("head")
    assert np.isnan(trace["confidence"]).tolist() == [False, True, False, False] * 5
    assert trace.words == {"masked": ("top_k",), "workload": ("docs",)}
    assert trace["masked"].tolist() == [-1, -1, 0, 0] * 5
    assert warned == []
    assert made.failure is None


def test_a_part_is_one_row_group_of_whole_steps(tmp_path: Path) -> None:
    made = TraceWriter(tmp_path / "t", INFO, Warned(), part_rows=10)
    for step in range(7):
        made.add(block(step), WORDS)
    made.close()
    parts = sorted((tmp_path / "t").iterdir())
    assert [part.name for part in parts] == [f"part-00000{n}.parquet" for n in range(3)]
    sizes = []
    for part in parts:
        file = pq.ParquetFile(part)
        assert file.num_row_groups == 1
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
        sizes.append(file.metadata.num_rows)
    assert sizes == [12, 12, 4]


def test_little_traffic_does_not_wait_for_a_whole_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PART_SECONDS", 0.0)
    made = TraceWriter(tmp_path / "t", INFO, Warned())
    made.add(block(0), WORDS)
    eventually((tmp_path / "t" / "part-000000.parquet").exists)
    made.close()


def test_words_may_be_added_while_it_is_written(tmp_path: Path) -> None:
    words = {"masked": ["top_k"], "workload": ["docs"]}
    made = TraceWriter(tmp_path / "t", INFO, Warned(), part_rows=4)
    made.add(block(0), words)
    words["workload"].append("code")
    made.add(block(1) | {"workload": np.ones(4, np.int32)}, words)
    made.close()
    trace = read(tmp_path / "t")
    told = [trace.words["workload"][n] if n >= 0 else None for n in trace["workload"]]
    assert told == ["docs", "docs", None, None, "code", "code", "code", "code"]


def test_censoring_is_told_of_the_whole_trace(tmp_path: Path) -> None:
    made = TraceWriter(tmp_path / "t", INFO, Warned(), part_rows=4)
    made.add(block(0), WORDS)
    made.info = INFO.model_copy(update={"censoring": "budget"})
    made.add(block(1), WORDS)
    made.close()
    assert read(tmp_path / "t" / "part-000000.parquet").info.censoring == "none"
    assert read(tmp_path / "t").info.censoring == "budget"


def test_nothing_added_leaves_nothing(tmp_path: Path) -> None:
    TraceWriter(tmp_path / "t", INFO, Warned()).close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    TraceWriter(tmp_path / "t", INFO, Warned()).close()
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def _file(path: Path) -> None:
    path.write_text("x")


def _used(path: Path) -> None:
    path.mkdir()
    (path / "part-000000.parquet").touch()


def _nowhere(path: Path) -> None:
    path.parent.rmdir()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (_file, "is not a folder"),
        (_used, "holds something already"),
        (_nowhere, "lies in no folder|cannot be made"),
        (lambda path: path.symlink_to("nowhere"), "is not a folder"),
    ],
)
@pytest.mark.parametrize("start", [check_folder, lambda path: TraceWriter(path, INFO, Warned())])
def test_a_folder_that_cannot_be_used_is_one_line(
    tmp_path: Path,
    prepare: Callable[[Path], None],
    words: str,
    start: Callable[[Path], object],
) -> None:
    path = tmp_path / "parent" / "t"
    path.parent.mkdir()
    prepare(path)
    with pytest.raises(TraceError, match=words) as caught:
        start(path)
    assert caught.value.code is Code.TRACE_WRITE
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
@pytest.mark.parametrize("start", [check_folder, lambda path: TraceWriter(path, INFO, Warned())])
def test_a_name_that_no_folder_can_have(
    tmp_path: Path, name: str, start: Callable[[Path], object]
) -> None:
    with pytest.raises(TraceError, match="AV-TRACE-WRITE"):
        start(tmp_path / name)


def test_two_recordings_do_not_share_a_folder(tmp_path: Path) -> None:
    first = TraceWriter(tmp_path / "t", INFO, Warned())
    with pytest.raises(TraceError, match="is being written by another recording"):
        TraceWriter(tmp_path / "t", INFO, Warned())
    first.close()
    TraceWriter(tmp_path / "t", INFO, Warned()).close()


def test_a_check_leaves_no_trace(tmp_path: Path) -> None:
    check_folder(tmp_path / "t")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_ends_the_recording_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = Warned()
    made = TraceWriter(tmp_path / "t", INFO, warned, part_rows=4)
    made.add(block(0), WORDS)
    eventually(lambda: made.parts == 1)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    made.add(block(1), WORDS)
    eventually(lambda: made.failure is not None)
    monkeypatch.undo()
    for step in range(2, 40):
        made.add(block(step), WORDS)
    made.close()
    assert len(warned) == 1
    assert warned[0].startswith("recording has ended: [AV-TRACE-WRITE] ")
    assert "No space left on device" in warned[0]
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["part-000000.parquet"]
    assert read(tmp_path / "t").num_rows == 4


def test_a_slow_disk_neither_delays_the_engine_nor_fills_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = Warned()
    go = threading.Event()
    fsync = os.fsync

    def slow(file: int) -> None:
        go.wait()
        fsync(file)

    monkeypatch.setattr(os, "fsync", slow)
    made = TraceWriter(tmp_path / "t", INFO, warned, part_rows=4)
    for step in range(50):
        made.add(block(step), WORDS)
    go.set()
    made.close()
    written = read(tmp_path / "t").num_rows
    # One part under way and those that wait.
    assert written <= 4 * (1 + writer._WAITING_PARTS + 1)
    assert written + made.dropped == 200
    assert len(warned) == 1
    assert "the disk is slower" in warned[0]


_KILLED = """
import sys
from pathlib import Path
from tests.unit.replay.test_writer import INFO, WORDS, block
from vllm_av.replay.writer import TraceWriter
made = TraceWriter(Path(sys.argv[1]), INFO, print, part_rows=400)
for step in range(10**9):
    made.add(block(step), WORDS)
"""


def test_a_killed_run_leaves_whole_parts_alone(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    root = Path(__file__).parents[3]
    child = subprocess.Popen([sys.executable, "-c", _KILLED, str(folder)], cwd=root)
    try:
        eventually(lambda: len(list(folder.glob("part-*"))) > 5)
    finally:
        child.kill()
        child.wait()
    for part in folder.glob("part-*"):
        assert pq.ParquetFile(part).read().num_rows % 400 == 0
    assert read(folder).num_rows >= 5 * 400
    # The lock went with the process, and what it left is refused as what it is.
    with pytest.raises(TraceError, match="holds something already"):
        TraceWriter(folder, INFO, Warned())
