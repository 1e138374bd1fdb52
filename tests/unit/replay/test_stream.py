"""How a trace is laid out: steps, request-steps, labels, and what is sound."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.replay.synthetic import synthetic
from vllm_av.errors import Code, TraceError
from vllm_av.replay.stream import LONGEST_GAP, lay_out
from vllm_av.replay.trace import Trace


def test_the_steps_are_the_traces_own() -> None:
    stream = lay_out(synthetic(steps=4, requests=2))
    assert (stream.steps, stream.rows) == (4, 24)
    assert stream.offsets.tolist() == [0, 6, 12, 18, 24]
    assert stream.group.tolist() == np.repeat(np.arange(8), 3).tolist()


def test_a_batch_puts_so_many_request_steps_into_a_step() -> None:
    stream = lay_out(synthetic(steps=4, requests=2), batch=3)
    assert stream.offsets.tolist() == [0, 9, 18, 24]


def test_a_step_without_rows_counts_but_a_long_gap_is_cut() -> None:
    step = np.repeat([1, 2, 4, 4 + 10**12], 6)
    stream = lay_out(synthetic(steps=4, requests=2, step=step))
    assert stream.steps == 1 + 1 + 2 + LONGEST_GAP
    assert stream.offsets[:5].tolist() == [0, 6, 12, 12, 18]
    assert stream.offsets[-2:].tolist() == [18, 24]


@pytest.mark.parametrize(
    ("first", "before"),
    [(-7, 0), (0, 0), (1, 0), (4, 3), (10**15, LONGEST_GAP)],
)
def test_the_steps_of_a_server_before_its_first_grades_count(first: int, before: int) -> None:
    step = np.repeat([first, first + 1], 6)
    stream = lay_out(synthetic(steps=2, requests=2, step=step))
    assert stream.offsets.tolist() == [0] * before + [0, 6, 12]


def test_only_requests_of_the_temperatures_wanted() -> None:
    trace = synthetic(steps=3, requests=4, temperatures=(0.0, 0.1, 1.0))
    stream = lay_out(trace, temperatures=[0.1, 1.0])
    assert set(stream["temperature"].tolist()) == {np.float32(0.1), 1.0}
    assert stream.rows == 3 * 2 * 3
    assert stream.offsets.tolist() == [0, 6, 12, 18]
    with pytest.raises(TraceError, match=r"temperature 0\.2; here: 0, 0\.1, 1") as caught:
        lay_out(trace, temperatures=[0.2])
    assert caught.value.code is Code.REPLAY_EMPTY


def test_the_memory_is_that_of_the_rows_whatever_k_is() -> None:
    trace = synthetic(steps=4000, requests=50, positions=1, intercepts=(0.0,))
    info = trace.info.model_copy(update={"num_speculative_tokens": 1024})
    tracemalloc.start()
    try:
        stream = lay_out(replace(trace, info=info))
        assert stream.running(np.full(stream.rows, 0.5)).tolist() == [0.5] * stream.rows
        assert tracemalloc.get_traced_memory()[1] < 200 * trace.num_rows  # bytes; a table: 1024
    finally:
        tracemalloc.stop()


def test_products_run_over_request_steps_of_any_length() -> None:
    rng = np.random.default_rng(0)
    trace = synthetic(steps=50, requests=4, positions=5, intercepts=(0.0,) * 5)
    length = rng.integers(1, 6, 200)
    rows = trace["position"] < np.repeat(length, 5)
    trace = Trace(trace.info, {n: v[rows] for n, v in trace.columns.items()}, int(rows.sum()))
    stream = lay_out(trace)
    values = rng.random(stream.rows)
    expected = np.concatenate([np.cumprod(values[stream.group == g]) for g in range(200)])
    assert stream.running(values) == pytest.approx(expected)


def test_a_row_that_is_none_spoils_what_follows_it_in_its_request_step() -> None:
    feature = np.zeros(12, np.float32)
    feature[1], feature[5] = np.nan, np.inf
    masked = np.full(12, -1)
    masked[9] = 0
    trace = synthetic(steps=2, requests=2, log_odds=feature, masked=masked)
    stream = lay_out(trace, ["log_odds"])
    assert np.flatnonzero(~stream.usable).tolist() == [1, 2, 5, 9, 10, 11]
    # Whether a row may teach is its own matter.
    assert np.flatnonzero(stream.labelled & ~stream.teaches).tolist() == [
        row for row in (1, 5, 9) if stream.labelled[row]
    ]
    assert not stream.teaches[[1, 5, 9]].any()


def test_a_feature_that_is_asked_for_must_be_a_number_too() -> None:
    margin = np.ones(12, np.float32)
    margin[0] = np.inf
    trace = synthetic(steps=2, requests=2, margin=margin)
    assert lay_out(trace).usable.all()
    assert np.flatnonzero(~lay_out(trace, ["margin"]).usable).tolist() == [0, 1, 2]


def test_running_products_begin_anew_in_each_request_step() -> None:
    stream = lay_out(synthetic(steps=2, requests=1))
    values = np.array([0.5, 0.5, 0.1, 1.0, 0.2, 0.2])
    assert stream.running(values).tolist() == pytest.approx([0.5, 0.25, 0.025, 1.0, 0.2, 0.04])


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(TraceError, match="head") as caught:
        lay_out(synthetic(steps=1), ["head"])
    assert caught.value.code is Code.TRACE_COLUMN
