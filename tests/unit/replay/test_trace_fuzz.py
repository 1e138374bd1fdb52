"""Reading a trace: whatever bytes and whatever rows a stranger has, a trace or one line comes."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.replay.traces import INFO, every_column, write
from vllm_av.errors import Code, TraceError
from vllm_av.replay.columns import COLUMNS
from vllm_av.replay.trace import read

CODES = {
    Code.TRACE_FILE, Code.TRACE_VERSION, Code.TRACE_INFO, Code.TRACE_COLUMN, Code.TRACE_ROWS,
}  # fmt: skip


def taken_or_told(path: Path) -> None:
    trace, told = None, None
    try:
        trace = read(path)
    except TraceError as error:
        told = error
    if trace is None:
        assert told is not None
        assert told.code in CODES
        assert "\n" not in str(told)
        assert len(str(told)) < 1000
        return
    # What is taken keeps the promises that its readers rely on.
    n = trace.num_rows
    assert n > 0
    assert {len(column) for column in trace.columns.values()} == {n}
    assert (trace["position"] < trace.info.num_speculative_tokens).all()
    assert not (trace["accepted"] & ~trace["verified"]).any()
    assert not (trace["accepted"] & ~trace.labelled).any()


def _bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write(Path(folder) / "t", every_column()).read_bytes()


WHOLE = _bytes()


@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1),
    st.integers(0, len(WHOLE)),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_bytes_that_were_changed_or_cut(changes: list[tuple[int, int]], length: int) -> None:
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(data[: length or None])
        taken_or_told(path)


numbers = st.one_of(
    st.integers(-2, 4),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
)


@given(
    st.dictionaries(
        st.sampled_from(list(COLUMNS)), st.tuples(st.integers(0, 8), numbers), min_size=1
    ),
    st.one_of(
        st.just(INFO),
        st.dictionaries(
            st.sampled_from(["version", "num_speculative_tokens", "censoring", "x"]),
            st.one_of(numbers, st.sampled_from(["none", "budget"])),
        ),
    ),
)
@example({"step": (0, 5)}, INFO)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_that_do_not_belong(changes: dict[str, tuple[int, Any]], info: Any) -> None:
    found = every_column()
    for name, (row, value) in changes.items():
        values = pa.array(found[name]).to_pylist()
        values[row] = value
        try:
            found[name] = pa.array(values)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            found[name] = pa.array([str(each) for each in range(9)])
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "t", found, info)
        taken_or_told(path)
