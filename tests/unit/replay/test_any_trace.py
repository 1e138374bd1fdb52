"""Whatever a valid trace holds: finite figures within their ranges, or one line that says why not.

Small traces as odd as hypothesis likes: certain drafters, rows that are no distribution, masks,
censoring, one position or sixteen, labels that are all alike.
"""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.replay.synthetic import synthetic
from vllm_av.errors import TraceError
from vllm_av.replay.learners import LEARNERS
from vllm_av.replay.optimum import features_in
from vllm_av.replay.options import chosen
from vllm_av.replay.replay import replay
from vllm_av.replay.scoring import halves, regimes
from vllm_av.replay.stream import lay_out
from vllm_av.replay.tables import tables
from vllm_av.replay.trace import Trace


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    k = draw(st.sampled_from([1, 2, 5, 16]))
    trace = synthetic(
        steps=draw(st.integers(1, 12)),
        requests=draw(st.integers(1, 4)),
        positions=k,
        intercepts=[draw(st.sampled_from([-50.0, 0.0, 50.0]))] * k,
        slope=draw(st.sampled_from([0.0, 1.0])),
        temperatures=draw(st.lists(st.sampled_from([0.0, 0.01, 1.0, 5.0]), min_size=1, max_size=3)),
        verified=draw(st.integers(0, k)),
        seed=draw(st.integers(0, 5)),
    )
    rng, rows = np.random.default_rng(draw(st.integers(0, 5))), trace.num_rows
    kind = draw(st.sampled_from(["normal", "constant", "certain", "two"]))
    values = {
        "normal": rng.normal(0, 3, rows),
        "constant": np.full(rows, draw(st.sampled_from([0.0, 40.0, -40.0]))),
        "certain": np.full(rows, 40.0),
        "two": rng.choice([-40.0, 40.0], rows),
    }[kind].astype(np.float32)
    values[rng.random(rows) < draw(st.sampled_from([0.0, 0.2, 1.0]))] = np.nan
    trace.columns["log_odds"] = values
    for name in ("log_odds_scaled", "margin", "entropy"):
        trace.columns[name] = values if name == "log_odds_scaled" else abs(values)
    if draw(st.booleans()):
        trace.columns["masked"] = rng.integers(-1, 2, rows).astype(np.int32)
    trace.columns["head"] = rng.random(rows).astype(np.float32)
    trace.columns["confidence"] = np.where(rng.random(rows) < 0.5, np.nan, 0.5).astype(np.float32)
    return trace


def walk(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return [leaf for value in part.values() for leaf in walk(value)]
    return [leaf for value in part for leaf in walk(value)] if isinstance(part, list) else [part]


@pytest.mark.parametrize("scorer", LEARNERS)
@settings(max_examples=40, deadline=None)
@given(trace=traces(), batch=st.sampled_from([None, 1, 3]), from_step=st.sampled_from([0, 3]))
def test_any_trace(scorer: str, trace: Trace, batch: int | None, from_step: int) -> None:
    learner = chosen(scorer, (), trace)
    features = features_in(trace)
    stream = lay_out(trace, dict.fromkeys((*learner.columns, *features)), batch=batch)
    predictions = replay(stream, learner)
    told = predictions[np.isfinite(predictions)]
    assert ((told >= 0.0) & (told <= 1.0)).all()
    assert scorer == "recorded" or np.isfinite(predictions[stream.usable]).all()
    state = json.dumps(learner.state(), allow_nan=False)
    assert all(abs(leaf) < 1e6 for leaf in walk(json.loads(state)))
    try:
        cut = halves(stream, from_step)
    except TraceError:
        return
    found = tables(stream, predictions, cut, regimes(stream["temperature"]), features).as_dict()
    json.dumps(found, allow_nan=False)
    assert found["overall"]["survival"]["labels"] >= found["positions"][0]["survival"]["labels"]
    for part in (found["overall"], *found["regimes"], *found["positions"]):
        for kind in ("conditional", "survival"):
            figures = part[kind]
            assert all(figures[name] is not None for name in ("brier", "ece_mass")) or (
                figures["labels"] == 0
            )
