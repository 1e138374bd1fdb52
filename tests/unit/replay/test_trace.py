"""Reading a trace: what comes of a right one."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.replay.traces import INFO, columns, every_column, same, write
from vllm_av.errors import Code, TraceError
from vllm_av.replay.columns import COLUMNS
from vllm_av.replay.trace import TraceInfo, read


def test_every_column_comes_back_as_it_was_written(tmp_path: Path) -> None:
    found = every_column()
    trace = read(write(tmp_path / "t.parquet", found))
    assert list(trace.columns) == list(COLUMNS)
    assert trace.num_rows == 9
    for name, values in found.items():
        if name in ("masked", "workload"):
            told = [trace.words[name][i] if i >= 0 else None for i in trace[name]]
            assert told == values.to_pylist()
        else:
            assert trace[name].dtype == np.dtype(COLUMNS[name].kind)
            wanted = np.array([float("nan") if v is None else v for v in values], np.float32)
            assert same(trace[name].astype(np.float32), wanted), name


def test_a_label_is_known_up_to_the_first_rejection_and_where_the_target_saw(
    tmp_path: Path,
) -> None:
    trace = read(write(tmp_path / "t.parquet"))
    labelled = [True, True, True, True, False, False, True, False, False]
    assert trace.labelled.tolist() == labelled


def test_what_is_masked_or_no_distribution_does_not_teach(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "t.parquet", every_column()))
    assert trace.finite.tolist() == [True] * 6 + [False, True, True]
    assert trace.may_teach.tolist() == [True] * 3 + [False] * 3 + [False, True, True]


def test_a_trace_of_the_required_columns_alone_may_teach_everywhere(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "t.parquet"))
    assert trace.may_teach.sum() == 8
    assert not trace.has("head")
    with pytest.raises(TraceError, match=r"AV-TRACE-COLUMN.* has no column 'head'"):
        trace["head"]


def test_a_column_of_nulls_is_not_there(tmp_path: Path) -> None:
    nothing = {"head": pa.array([None] * 9, pa.float32()), "workload": pa.array([None] * 9)}
    nothing["workload"] = nothing["workload"].cast(pa.string())
    trace = read(write(tmp_path / "t.parquet", columns() | nothing))
    assert not trace.has("head")
    assert not trace.has("workload")
    assert trace.has("log_odds")


@pytest.mark.parametrize("name", [n for n, c in COLUMNS.items() if c.nullable])
def test_a_column_of_nothing_but_none_is_not_there(tmp_path: Path, name: str) -> None:
    """What pyarrow makes of such a list has the type null."""
    trace = read(write(tmp_path / "t.parquet", every_column() | {name: [None] * 9}))
    assert not trace.has(name)
    assert trace.has("entropy")


def test_only_what_is_wanted_is_read_and_the_required_ones(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "t.parquet", every_column()), ["entropy"])
    required = [name for name, column in COLUMNS.items() if column.required]
    assert list(trace.columns) == [*required, "entropy", "masked"]


def test_other_widths_and_plain_strings_are_read(tmp_path: Path) -> None:
    found = {name: pa.array(values) for name, values in columns().items()}
    found["step"] = found["step"].cast(pa.uint8())
    found["position"] = found["position"].cast(pa.int64())
    found["log_odds"] = found["log_odds"].cast(pa.float16())
    found["masked"] = pa.array(["custom"] + [None] * 8, pa.large_string())
    trace = read(write(tmp_path / "t.parquet", found))
    assert trace["step"].dtype == np.int64
    assert trace["position"].dtype == np.int16
    assert trace["log_odds"].dtype == np.float32
    assert trace.may_teach.sum() == 7


def test_the_parts_of_a_folder_are_one_trace_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    found = every_column()
    cut = {name: values[:6] for name, values in found.items()}
    rest = {name: values[6:] for name, values in found.items()}
    # Two parts that number their words differently.
    rest["workload"] = pa.array(["code", "docs", "code"]).dictionary_encode()
    rest["workload"] = pa.array(["code"] * 3).dictionary_encode()
    write(tmp_path / "part-000010.parquet", rest)
    write(tmp_path / "part-000009.parquet", cut)
    (tmp_path / ".part-000011.parquet.tmp").write_bytes(b"half of a part")
    trace = read(tmp_path)
    assert trace["step"].tolist() == [4] * 6 + [7] * 3
    told = [trace.words["workload"][i] if i >= 0 else None for i in trace["workload"]]
    assert told == ["docs"] * 3 + [None] * 3 + ["code"] * 3


def test_what_a_trace_says_of_itself_is_told_and_unknown_keys_are_left_out(tmp_path: Path) -> None:
    says = INFO | {"drafter": "EAGLE-3", "vocabulary": 49152, "later": [1]}
    trace = read(write(tmp_path / "t.parquet", info=says))
    assert trace.info == TraceInfo(
        num_speculative_tokens=3, censoring="budget", drafter="EAGLE-3", vocabulary=49152
    )
    assert trace.info.scorer is None


def test_another_version_has_a_code_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", info=json.dumps(INFO | {"version": 2}))
    with pytest.raises(TraceError, match="is of version 2; version 1;") as caught:
        read(path)
    assert caught.value.code == Code.TRACE_VERSION
