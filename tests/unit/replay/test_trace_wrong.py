"""Reading a trace: everything that can be wrong with a stranger's file is one line with a code."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.replay.traces import INFO, columns, every_column, write
from vllm_av.errors import Code, TraceError
from vllm_av.replay.columns import COLUMNS
from vllm_av.replay.trace import read


def _refused(path: Path, code: Code, *words: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(path)
    assert caught.value.code == code
    line = str(caught.value)
    assert "\n" not in line
    for word in (str(path), *words):
        assert word in line


def _nothing(path: Path) -> None:
    pass


def _not_parquet(path: Path) -> None:
    path.write_bytes(b"step,request\n1,2\n" * 10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_nothing, "no such file"),
        (Path.mkdir, "the folder holds no part"),
        (os.mkfifo, "it is not a file"),
        (Path.touch, "file size is 0 bytes"),
        (_not_parquet, "cannot be read as a trace"),
    ],
)
def test_a_path_that_is_no_trace(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    make(tmp_path / "t")
    _refused(tmp_path / "t", Code.TRACE_FILE, words)


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    _refused(path, Code.TRACE_FILE)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (None, "has no key vllm_av.trace"),
        ("{", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "wrong version"),
        ({key: value for key, value in INFO.items() if key != "censoring"}, "wrong censoring"),
        (INFO | {"version": "1"}, "wrong version"),
        (INFO | {"version": True}, "wrong version"),
        (INFO | {"num_speculative_tokens": 0}, "wrong num_speculative_tokens"),
        (INFO | {"num_speculative_tokens": 3.5}, "wrong num_speculative_tokens"),
        (INFO | {"num_speculative_tokens": 10**30}, "wrong num_speculative_tokens"),
        (INFO | {"censoring": "some"}, "wrong censoring"),
        (INFO | {"drafter": "x" * 1000}, "wrong drafter"),
    ],
)
def test_what_it_says_of_itself(tmp_path: Path, info: Any, words: str) -> None:
    _refused(write(tmp_path / "t.parquet", info=info), Code.TRACE_INFO, words)


@pytest.mark.parametrize("name", [name for name, column in COLUMNS.items() if column.required])
def test_a_required_column_that_is_missing(tmp_path: Path, name: str) -> None:
    found = columns()
    del found[name]
    _refused(write(tmp_path / "t.parquet", found), Code.TRACE_COLUMN, f"no column {name}")


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_the_wrong_type(tmp_path: Path, name: str) -> None:
    nothing = [] if COLUMNS[name].nullable else [pa.array([None] * 9, pa.null())]
    for wrong in (pa.array([b"x"] * 9), pa.array([[1]] * 9), *nothing):
        path = write(tmp_path / "t.parquet", every_column() | {name: wrong})
        _refused(path, Code.TRACE_COLUMN, f"the column {name} of the type")


@pytest.mark.parametrize("name", [n for n, c in COLUMNS.items() if not c.nullable])
def test_nulls_where_each_row_needs_a_value(tmp_path: Path, name: str) -> None:
    values = pa.array([*every_column()[name][:-1], None])
    path = write(tmp_path / "t.parquet", every_column() | {name: values})
    _refused(path, Code.TRACE_COLUMN, f"nulls in the column {name}")


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    table = pa.table(columns())
    table = table.append_column("step", table["step"])
    pa.parquet.write_table(
        table.replace_schema_metadata({"vllm_av.trace": json.dumps(INFO)}), tmp_path / "t.parquet"
    )
    _refused(tmp_path / "t.parquet", Code.TRACE_COLUMN, "2 columns step")


@pytest.mark.parametrize(
    ("name", "row", "value", "words"),
    [
        ("step", 0, -1, "-1 for step in row 0"),
        ("request", 8, -5, "-5 for request in row 8"),
        ("position", 2, 70_000, "70000 for position in row 2"),
        ("temperature", 3, -0.5, "-0.5 for temperature in row 3"),
        ("log_odds", 1, 41.0, "41 for log_odds in row 1"),
        ("entropy", 1, -1.0, "-1 for entropy in row 1"),
        ("margin_scaled", 4, -0.5, "-0.5 for margin_scaled in row 4"),
        ("log_q_drawn", 4, 0.5, "0.5 for log_q_drawn in row 4"),
        ("head", 4, 1.5, "1.5 for head in row 4"),
        ("confidence", 4, float("inf"), "inf for confidence in row 4"),
    ],
)
def test_a_value_out_of_its_range(
    tmp_path: Path, name: str, row: int, value: float, words: str
) -> None:
    found = every_column()
    found[name] = [*found[name][:row], value, *found[name][row + 1 :]]
    _refused(write(tmp_path / "t.parquet", found), Code.TRACE_COLUMN, words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": [4] * 6 + [3] * 3}, "row 6 a step below"),
        ({"position": [0, 1, 2, 0, 2, 1, 0, 1, 2]}, "row 4 a position that does not follow"),
        ({"position": [1, 2, 0, 0, 1, 2, 0, 1, 2]}, "row 0 a position that does not follow"),
        ({"request": [0, 0, 1, 1, 1, 1, 0, 0, 0]}, "row 2 a position that does not follow"),
        ({"request": [0] * 9}, "row 3 a request that is graded twice in one step"),
        ({"accepted": [True] + [False] * 7 + [True]}, "row 8 a draft token that was accepted and"),
        ({"accepted": [False, True] + [False] * 7}, "row 1 a draft token that was accepted, thou"),
        ({"verified": [True] * 6 + [True, False, True]}, "row 8 a draft token that was verified,"),
        ({"temperature": [1.0] * 8 + [0.5]}, "row 8 another temperature"),
        ({"temperature": [1.0] * 6 + [float("nan")] * 3}, "row 6 no finite temperature"),
        ({"entropy": [0.5] * 9}, "row 6 entropy and log_odds of which one is finite"),
        ({"workload": ["a"] * 4 + ["b"] * 5}, "row 4 another workload"),
    ],
)
def test_rows_that_contradict_each_other(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    _refused(write(tmp_path / "t.parquet", columns() | change), Code.TRACE_ROWS, words)


def test_rows_of_one_request_that_are_not_side_by_side(tmp_path: Path) -> None:
    found = {name: values[:3] * 3 for name, values in columns().items()}
    found["request"] = [0] * 3 + [1] * 3 + [0] * 3
    path = write(tmp_path / "t.parquet", found)
    _refused(path, Code.TRACE_ROWS, "row 6 a request that is graded twice")


def test_a_number_that_int64_does_not_hold(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.parquet", columns() | {"step": pa.array([4] * 8 + [2**63], pa.uint64())}
    )
    _refused(path, Code.TRACE_COLUMN, "9223372036854775808 for step in row 8")


def test_positions_beyond_the_number_of_draft_tokens(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", info=INFO | {"num_speculative_tokens": 2})
    _refused(path, Code.TRACE_ROWS, "row 2 a position that is not below", "(2)")


def test_no_rows(tmp_path: Path) -> None:
    empty = pa.table(columns()).slice(0, 0).to_pydict()
    typed = {name: pa.array(empty[name], pa.table(columns())[name].type) for name in empty}
    _refused(write(tmp_path / "t.parquet", typed), Code.TRACE_ROWS, "has no rows")


@pytest.mark.parametrize("other", [{"info": INFO | {"scorer": "x"}}, {"found": every_column()}])
def test_parts_of_two_recordings(tmp_path: Path, other: dict[str, Any]) -> None:
    write(tmp_path / "part-000000.parquet")
    write(tmp_path / "part-000001.parquet", **other)
    _refused(tmp_path, Code.TRACE_INFO, "part-000001.parquet", "of another recording")


def test_a_part_that_is_damaged_among_whole_ones(tmp_path: Path) -> None:
    write(tmp_path / "part-000000.parquet")
    (tmp_path / "part-000001.parquet").write_bytes(b"PAR1")
    _refused(tmp_path, Code.TRACE_FILE)


def test_an_environment_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TraceError, match=r"AV-TRACE-LIBRARY.*pip install .vllm_av\[traces\]"):
        read(path)
