"""Which rows are fitted on and which are scored, and how temperatures are grouped."""

import numpy as np
import pytest

from tests.unit.replay.synthetic import synthetic
from vllm_av.errors import Code, TraceError
from vllm_av.replay.scoring import halves, regimes
from vllm_av.replay.stream import lay_out


@pytest.mark.parametrize(
    ("steps", "from_step", "middle", "begins"),
    [(500, 200, 250, 250), (300, 200, 150, 200), (100, 0, 50, 50), (101, 70, 50, 70)],
)
def test_the_halves(steps: int, from_step: int, middle: int, begins: int) -> None:
    stream = lay_out(synthetic(steps=steps, requests=2))
    found = halves(stream, from_step)
    assert found.begins == begins
    assert (found.fitted == (stream.labelled & (stream.step < middle))).all()
    assert (found.scored == (stream.labelled & (stream.step >= begins))).all()


@pytest.mark.parametrize(("steps", "from_step"), [(200, 200), (1, 0), (150, 150)])
def test_a_trace_that_leaves_nothing_is_refused(steps: int, from_step: int) -> None:
    with pytest.raises(TraceError, match=f"labels in {steps} decode steps") as caught:
        halves(lay_out(synthetic(steps=steps)), from_step)
    assert caught.value.code is Code.REPLAY_EMPTY


def test_a_short_trace_is_scored_from_its_middle_unless_told_otherwise() -> None:
    short, long = (lay_out(synthetic(steps=steps, requests=2)) for steps in (150, 600))
    assert halves(short).begins == 75
    assert halves(long).begins == 300
    assert halves(lay_out(synthetic(steps=300, requests=2))).begins == 200


def test_masked_rows_are_on_neither_side() -> None:
    trace = synthetic(steps=20, requests=4)
    trace.columns["masked"] = np.where(trace["request"] == 1, 0, -1)
    found = halves(lay_out(trace), 0)
    assert not (found.fitted | found.scored)[trace["request"] == 1].any()
    assert found.fitted.any()


def test_a_few_temperatures_are_each_a_regime() -> None:
    found = regimes(np.array([1.0, 0.0, 0.3, 1.0], np.float32))
    assert found.names == ("0", "0.3", "1")
    assert found.of.tolist() == [2, 0, 1, 2]


def test_many_temperatures_are_put_into_bins() -> None:
    temperature = np.array([0.0, 0.01, 0.05, 0.06, *np.linspace(0.5, 0.6, 11), 1.15, 1.2, 9.0])
    found = regimes(temperature.astype(np.float32))
    assert found.names == ("0", "0-0.05", "0.05-0.2", "0.4-0.6", "0.85-1.15", ">1.15")
    assert found.of.tolist() == [0, 1, 1, 2, *[3] * 11, 4, 5, 5]
