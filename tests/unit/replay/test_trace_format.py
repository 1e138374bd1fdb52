"""docs/trace-format.md says what the code does: its table, and its example."""

import re
from pathlib import Path

import pytest

from ci import trace_format
from vllm_av.replay.info import TraceInfo
from vllm_av.replay.trace import read
from vllm_av.replay.writer import PART_ROWS, PART_SECONDS
from vllm_av.scorers.target_only import WORDS

PAGE = trace_format.PAGE.read_text(encoding="utf-8")


def test_the_table_is_that_of_the_columns() -> None:
    part = PAGE.partition(trace_format.BEGIN)[2].partition(trace_format.END)[0]
    assert part == f"\n{trace_format.table()}\n"


def test_the_example_writes_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "example", "exec"), {})
    trace = read("my-trace.parquet")
    assert trace.labelled.tolist() == [True, True, True, False]
    assert trace.info.drafter == "mine"


def test_every_key_and_word_and_the_sizes_are_named() -> None:
    for name in (*TraceInfo.model_fields, *WORDS):
        assert f"`{name}`" in PAGE, name
    assert f"{PART_ROWS:,} rows, or what came in a minute" in PAGE
    assert PART_SECONDS == 60
