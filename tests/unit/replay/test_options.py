"""Settings of a replay are settings of serving."""

from dataclasses import replace

import pytest

from tests.unit.replay.synthetic import synthetic
from vllm_av.drafters import TYPES, drafter_type
from vllm_av.errors import Code, ConfigError, TraceError
from vllm_av.replay.options import chosen

TRACE = synthetic(steps=1, positions=2, intercepts=(0.0, 0.0))


def test_settings_reach_the_learner() -> None:
    learner = chosen(
        "upstream",
        ["estimator.refit_interval=7", "estimator.initial_intercepts=[1, 2]"],
        TRACE,
    )
    assert learner.steps_to_refit() == 7
    assert learner.state()["intercepts"] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("scorer", "assignment", "code"),
    [
        ("online_estimator", "estimator.dampin=20", Code.CONFIG_KEY),
        ("online_estimator", "estimator.damping=-1", Code.CONFIG_RANGE),
        ("online_estimator", "estimator.damping=much", Code.CONFIG_TYPE),
        ("online_estimator", "estimator.damping=NaN", Code.CONFIG_RANGE),
        ("online_estimator", "estimator.initial_intercepts=[1, 2, 3]", Code.CONFIG_COUNT),
        ("upstream", "estimator.initial_intercepts=[1, 2, 3]", Code.CONFIG_COUNT),
        ("max_probability", "estimator.damping=20", Code.CONFIG_UNUSED),
        ("online_estimator", "estimater.damping=20", Code.CONFIG_KEY),
        ("online_estimator", "estimator.initial_slope.deeper=20", Code.CONFIG_TYPE),
    ],
)
def test_a_wrong_setting_is_what_it_is_in_serving(scorer: str, assignment: str, code: Code) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(scorer, [assignment], TRACE)
    assert caught.value.code is code


@pytest.mark.parametrize("assignment", ["estimator.damping", "damping=20", "=", "estimator.=3", ""])
def test_what_is_no_assignment_is_refused(assignment: str) -> None:
    with pytest.raises(TraceError, match="KEY=VALUE") as caught:
        chosen("online_estimator", [assignment], TRACE)
    assert caught.value.code is Code.REPLAY_OPTION


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(TraceError, match="nested too deeply") as caught:
        chosen("online_estimator", ["estimator.damping=" + "[" * 100_000], TRACE)
    assert caught.value.code is Code.REPLAY_OPTION


def test_an_unknown_scorer_is_refused_with_those_there_are() -> None:
    with pytest.raises(TraceError, match="one of online_estimator, ") as caught:
        chosen("online", [], TRACE)
    assert caught.value.code is Code.REPLAY_SCORER


def test_a_scorer_of_another_package_cannot_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_av.replay.options.names", lambda: ["sure"])
    with pytest.raises(TraceError, match="no trace holds") as caught:
        chosen("sure", [], TRACE)
    assert caught.value.code is Code.REPLAY_SCORER


def test_the_start_is_that_of_the_drafters_type_unless_it_is_set() -> None:
    """-.61 is Inkling's with MTP (vLLM pull request 52228)."""
    info = TRACE.info.model_copy(update={"method": "mtp"})
    trace = replace(TRACE, info=info)
    start = drafter_type("mtp").start
    assert start.intercept == -0.61
    found = chosen("pooled_estimator", [], trace).state()
    assert (found["slope"], found["intercepts"]) == (start.slope, [start.intercept] * 2)
    found = chosen("pooled_estimator", ["estimator.initial_slope=2"], trace).state()
    assert (found["slope"], found["intercepts"]) == (2.0, [start.intercept] * 2)
    # vLLM's own starts where it always does.
    assert chosen("upstream", [], trace).state()["slope"] == 0.5


def start_of(**says: str | None) -> tuple[float, float]:
    trace = replace(TRACE, info=TRACE.info.model_copy(update=says))
    found = chosen("pooled_estimator", [], trace).state()
    assert found["intercepts"] == found["intercepts"][:1] * 2
    return found["slope"], found["intercepts"][0]


def test_the_start_is_that_of_the_drafter_where_its_method_has_several() -> None:
    """.44 and -.16 are Muse-Glimmer's with DFlash2 (vLLM pull request 52228)."""
    assert start_of(method="dflash") == (0.67, -0.58)
    assert start_of(method="dflash", drafter="DFlash2") == (0.44, -0.16)
    assert start_of(method="dflash", drafter="LiLiCorr") == (0.5, -0.2)
    assert start_of(method="mtp", drafter="Gemma-4 MTP") == (0.5, -0.2)
    # As it is called in configs, and without the method; a stranger's name says nothing.
    assert start_of(drafter="dflash2") == (0.44, -0.16)
    assert start_of(method="dflash", drafter="mine") == (0.67, -0.58)
    assert start_of(drafter="mine") == (0.5, -0.2)


def test_what_a_recording_calls_a_drafter_is_told_apart() -> None:
    words = [word for row in TYPES for word in {row.title, row.name}]
    assert len(words) == len(set(words))


def test_a_trace_without_margins_can_be_replayed_too() -> None:
    columns = chosen("online_estimator", [], TRACE).columns
    margin = replace(TRACE, columns=TRACE.columns | {"margin": TRACE["log_odds"]})
    assert set(chosen("online_estimator", [], margin).columns) == {*columns, "margin"}
