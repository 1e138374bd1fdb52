"""Every figure of a replay, worked out again row by row from a small trace."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.replay.synthetic import synthetic
from tests.unit.replay.traces import columns as small
from tests.unit.replay.traces import write
from vllm_av.errors import Code, TraceError
from vllm_av.replay import metrics
from vllm_av.replay.optimum import fit
from vllm_av.replay.run import Wish, run
from vllm_av.replay.scoring import halves, regimes
from vllm_av.replay.stream import lay_out
from vllm_av.replay.tables import Tables, tables
from vllm_av.replay.text import lines
from vllm_av.replay.trace import Trace

FEATURES = ("log_odds", "log_odds_scaled")
OTHERS = ("entropy", "entropy_scaled", "margin", "margin_scaled", "head")


def figured(trace: Trace, predictions: np.ndarray, from_step: int = 0) -> Tables:
    stream = lay_out(trace, FEATURES)
    kinds = regimes(stream["temperature"])
    return tables(stream, predictions, halves(stream, from_step), kinds, FEATURES)


def test_survival_is_of_the_verified_rows_and_conditional_of_the_labelled() -> None:
    trace = synthetic(steps=40, requests=4, verified=2, temperatures=(0.0, 0.5))
    masked = np.full(trace.num_rows, -1)
    masked[trace["request"] == 3] = 1
    trace.columns["masked"] = masked
    predictions = np.random.default_rng(1).uniform(0.1, 0.9, trace.num_rows)
    found = figured(trace, predictions)
    said: dict[str, list[tuple[float, bool]]] = {"conditional": [], "survival": []}
    by_position: list[list[tuple[float, bool]]] = [[], [], []]
    for row in range(40 // 2 * 12, trace.num_rows):
        k = int(trace["position"][row])
        if trace["request"][row] == 3 or k == 2:
            continue
        y = bool(trace["accepted"][row])
        said["survival"].append((float(predictions[row - k : row + 1].prod()), y))
        by_position[k].append(said["survival"][-1])
        if k == 0 or trace["accepted"][row - 1]:
            said["conditional"].append((predictions[row], y))
    for name, rows in said.items():
        p, y = (np.array(each) for each in zip(*rows, strict=True))
        own = getattr(found.overall, name)
        assert own.labels == len(rows)
        assert own.log_loss == pytest.approx(metrics.log_loss(p, y), abs=1e-12)
        assert own.ece_mass == pytest.approx(metrics.ece_mass(p, y), abs=1e-12)
    for k, rows in enumerate(by_position):
        assert found.positions[k].survival.labels == len(rows)
        if rows:
            p, y = (np.array(each) for each in zip(*rows, strict=True))
            assert found.positions[k].survival.brier == pytest.approx(((p - y) ** 2).mean())


def test_each_regime_is_held_to_its_best_feature() -> None:
    trace = synthetic(steps=200, requests=8, temperatures=(0.2, 1.0, 2.0))
    # The target follows the scaled log-odds at the last of them, and there alone.
    rng = np.random.default_rng(2)
    follows = trace["temperature"] == 2.0
    x = np.where(follows, trace["log_odds_scaled"], trace["log_odds"])
    trace.columns["log_odds"] = np.where(follows, rng.normal(0, 1, len(x)), trace["log_odds"])
    trace.columns["accepted"] = x > 0.0  # the labelled mask needs no more than this
    trace.columns["verified"] = trace["position"] == 0
    found = figured(trace, np.full(trace.num_rows, 0.5))
    best = {part.name: part.optimum.best for part in found.regimes}
    assert best["2"] == "log_odds_scaled"
    assert found.overall.optimum.best == "each regime's" or set(best.values()) == {best["2"]}
    rows = [part.conditional.labels for part in found.regimes]
    least = [part.optimum.log_loss for part in found.regimes]
    assert found.overall.optimum.log_loss == pytest.approx(np.average(least, weights=rows))
    loss = found.overall.conditional.log_loss
    assert found.overall.optimum.gap == pytest.approx(loss / np.average(least, weights=rows) - 1.0)
    for part, fits in zip(found.regimes, found.fits["log_odds"], strict=True):
        assert part.optimum.log_loss == min(part.optimum.features.values())
        assert fits is not None


def test_the_optimum_is_of_the_first_half_and_scored_on_the_rows_of_the_learner() -> None:
    trace = synthetic(steps=60, requests=4, temperatures=(1.0,))
    stream = lay_out(trace, FEATURES)
    cut = halves(stream, 0)
    found = figured(trace, np.full(trace.num_rows, 0.5))
    x, k, y = stream["log_odds"], stream["position"], stream["accepted"]
    law = fit(x[cut.fitted], k[cut.fitted], y[cut.fitted], 3)
    expected = metrics.log_loss(law.predict(x[cut.scored], k[cut.scored]), y[cut.scored])
    assert found.overall.optimum.features["log_odds"] == pytest.approx(expected, abs=1e-12)
    assert found.overall.optimum.pooled["log_odds"] == pytest.approx(expected, abs=1e-12)


def test_a_regime_that_is_only_in_the_second_half_has_no_optimum() -> None:
    trace = synthetic(steps=40, requests=4, temperatures=(1.0,))
    trace.columns["temperature"] = np.where(trace["step"] < 26, 1.0, 0.5).astype(np.float32)
    found = figured(trace, np.full(trace.num_rows, 0.5))
    late = found.regimes[0]
    assert late.name == "0.5"
    assert late.optimum.best == "none"
    assert late.as_dict()["optimum"]["log_loss"] is None
    assert late.conditional.labels > 0
    # The gap is of the rows that have one.
    early = found.regimes[1].optimum
    assert found.overall.optimum.gap == pytest.approx(early.gap)


def test_rows_that_a_scorer_says_nothing_of_are_in_no_figure() -> None:
    trace = synthetic(steps=40, requests=4)
    predictions = np.full(trace.num_rows, 0.5)
    predictions[trace["request"] == 2] = np.nan
    found = figured(trace, predictions)
    everybody = figured(trace, np.full(trace.num_rows, 0.5))
    assert found.overall.survival.labels == everybody.overall.survival.labels * 3 // 4
    assert np.isfinite(found.overall.conditional.log_loss)


def whole(path: Path) -> Path:
    trace = synthetic(steps=50, requests=6, verified=2)
    found = {name: trace[name] for name in trace.columns}
    certain = abs(trace["log_odds"])
    found |= dict.fromkeys(OTHERS[:-1], certain)
    found["head"] = np.full(trace.num_rows, 0.5, np.float32)
    return write(path / "t.parquet", found)


def test_the_answer_for_programs_and_for_people(tmp_path: Path) -> None:
    path = whole(tmp_path)
    result = run(path, Wish("pooled_estimator", ("estimator.refit_interval=5",), from_step=10))
    answer = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert answer["version"] == 1
    assert answer["scorer"] == "pooled_estimator"
    assert answer["scored_from_step"] == 25
    assert [part["name"] for part in answer["regimes"]] == ["0", "1"]
    assert [part["name"] for part in answer["positions"]] == ["0", "1", "2"]
    assert answer["positions"][2]["survival"]["labels"] == 0
    assert answer["state"]["refits"] == 10
    counts = answer["counts"]
    assert (counts["rows"], counts["request_steps"], counts["steps"]) == (900, 300, 50)
    assert set(answer["fits"]) == {*FEATURES, *OTHERS}
    text = list(lines(result))
    assert max(map(len, text[1:-3])) <= 100
    loss = answer["overall"]["conditional"]["log_loss"]
    assert any(f"{loss:.4f}"[1:] in line for line in text)
    assert any("budget" in line for line in text)


def test_other_steps_and_other_requests(tmp_path: Path) -> None:
    path = whole(tmp_path)
    result = run(path, Wish("upstream", batch=50, temperatures=(1.0,), from_step=0))
    assert result.counts["steps"] == 3
    assert [part.name for part in result.tables.regimes] == ["1"]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    trace = synthetic(steps=6, requests=2)
    found = {name: trace[name].copy() for name in trace.columns}
    for name in FEATURES:
        found[name][[1, 9]] = np.nan
    reasons = [None] * 24 + ["top_k"] * 6 + [None] * 6
    found["masked"] = pa.array(reasons).dictionary_encode()
    result = run(write(tmp_path / "t.parquet", found), Wish("max_probability", from_step=0))
    assert result.counts["not_a_distribution"] == 2
    assert result.counts["masked"] == 6
    # Rows 1, 2; 9, 10, 11 and the masked ones.
    assert result.counts["left_out"] == 2 + 3 + 6
    assert any("6 masked, 2 no distribution" in line for line in lines(result))


def test_a_column_that_the_scorer_reads_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="confidence") as caught:
        run(write(tmp_path / "t.parquet", small()), Wish("recorded", from_step=0))
    assert caught.value.code is Code.TRACE_COLUMN


@pytest.mark.parametrize(
    "wish",
    [
        Wish("upstream", batch=0),
        Wish("upstream", from_step=-1),
        Wish("upstream", temperatures=(-0.5,)),
        Wish("upstream", temperatures=(float("nan"),)),
    ],
)
def test_an_option_out_of_its_range_is_refused(tmp_path: Path, wish: Wish) -> None:
    with pytest.raises(TraceError) as caught:
        run(tmp_path / "nothing", wish)
    assert caught.value.code is Code.REPLAY_OPTION
