"""What is said follows from the figures: a loss is called a loss, and nothing is invented."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from vllm_av.demo.comparison import Comparison
from vllm_av.demo.figures import ArmResult, Coefficients, Drafts, Load, Position, ScorerInForce
from vllm_av.demo.report import as_dict, render, sentences
from vllm_av.demo.settings import Arm, Pair, Settings, ask_text, serve_text

_PAIR = Pair(Path("/m"), Path("/d"))
_SETTINGS = Settings(concurrency=(4,), num_speculative_tokens=2)


def _load(
    seconds: float,
    drafts: Drafts,
    outputs: tuple[int, ...] = (7, 8),
    core: float = 0.99,
    priced_ms: tuple[float, float] | None = None,
) -> Load:
    return Load(
        concurrency=4,
        requests=2,
        seconds=seconds,
        cpu_seconds=seconds * core,
        tokens=102,
        steps=100,
        request_steps=52,
        drafts=drafts,
        priced_ms=priced_ms,
        outputs=[[token] for token in outputs],
    )


def _comparison(
    none: float = 1.0,
    fixed: float = 2.0,
    adaptive: float = 1.6,
    settings: Settings = _SETTINGS,
    observed: bool = True,
    learns: bool = True,
    outputs: tuple[int, ...] = (7, 8),
    core: float = 0.99,
    refits: int = 2,
    priced_ms: tuple[float, float] = (50.0, 80.0),
    verified: int = 20,
) -> Comparison:
    positions = [Position(labels=20, accepted=8, predicted=9.0, predictions=20), Position()]
    trimmed = Drafts(
        scheduled=80,
        verified=verified,
        accepted=8,
        positions=positions if observed else [Position()] * 2,
    )
    # Observed, and nothing predicts.
    unpredicted = [Position(labels=30, accepted=12), Position()]
    every = Drafts(scheduled=80, verified=80, accepted=12, positions=unpredicted)
    loads = {
        Arm.NONE: _load(none, Drafts()),
        Arm.FIXED: _load(fixed, every),
        Arm.ADAPTIVE: _load(adaptive, trimmed, outputs, core, priced_ms),
    }
    learnt = Coefficients(
        slopes={"log q": 0.51, "margin": -0.02},
        intercepts=[-0.3, -0.1],
        refits=refits,
        refit_interval=100,
        decode_steps=100 * refits + 62,
    )
    scorer = ScorerInForce(name="online_estimator", reason="the checkpoint has no head")
    arms = {
        arm: ArmResult(
            start_seconds=1.0,
            loads=[load],
            coefficients=learnt if arm is Arm.ADAPTIVE and learns else None,
            scorer=scorer if arm is Arm.ADAPTIVE else None,
        )
        for arm, load in loads.items()
    }
    return Comparison(settings, _PAIR, arms)


def test_a_slower_arm_is_called_slower() -> None:
    said = " ".join(sentences(_comparison()))
    assert "fixed K was slower (0.50x) than no speculation" in said
    assert "verification was slower (0.62x) than no speculation" in said
    assert "adaptive verification was faster (1.25x) than fixed K" in said
    assert "o verdict" not in said


def test_a_faster_arm_is_called_faster() -> None:
    said = " ".join(sentences(_comparison(none=2.0, fixed=1.0, adaptive=0.5)))
    assert "fixed K was faster (2.00x) than no speculation" in said
    assert "verification was faster (4.00x) than no speculation" in said


def test_a_difference_too_small_to_show_is_none() -> None:
    said = " ".join(sentences(_comparison(fixed=1.004)))
    assert "fixed K was as fast (1.00x) as no speculation" in said
    assert "fixed K was slower (0.99x)" in " ".join(sentences(_comparison(fixed=1.01)))


def test_speeds_that_other_work_decided_are_not_compared() -> None:
    # 1.25 times as fast as fixed K by the clock, and slower by the time that it computed.
    said = sentences(_comparison(fixed=2.0, adaptive=1.6, core=1.5))
    clause = "against fixed K: no verdict (1.25x by the clock, 0.82x by core time)"
    assert clause in " ".join(said)
    assert "faster (" not in " ".join(said)
    reasons = [sentence for sentence in said if "the clock and core time disagree" in sentence]
    assert reasons == [said[2]]


def test_how_much_of_a_core_the_arms_had_is_told() -> None:
    said = " ".join(sentences(_comparison(core=0.4)))
    assert "the arms had at least 40% of a core" in said


def test_the_cost_of_a_step_is_told() -> None:
    said = " ".join(sentences(_comparison()))
    assert "one of fixed K took 2.00x the core time for 2.00 tokens a request and step" in said


def test_predictions_are_compared_with_what_was_observed() -> None:
    said = " ".join(sentences(_comparison()))
    assert "pricing a step at 50 ms without drafts and 80 ms with all of them, adaptive" in said
    assert "verified 20 of 80 scheduled drafts, and 8 (40%) of these were accepted" in said
    assert "fixed K verified all 80, and 12 (15%) were" in said
    assert "Over its 20 observed drafts it predicted 0.45 on average, and 0.40 was" in said


def test_prices_that_are_close_say_why_all_was_verified() -> None:
    said = " ".join(sentences(_comparison(priced_ms=(50.0, 51.0), verified=80)))
    clause = (
        "pricing a step at 50 ms without drafts and 51 ms with all of them, so that trimming would "
        "save almost nothing, adaptive verification verified all 80 scheduled drafts"
    )
    assert clause in said
    assert "trimming" not in " ".join(sentences(_comparison(priced_ms=(50.0, 53.0))))


def test_the_scorer_in_force_is_named_with_its_reason() -> None:
    said = sentences(_comparison())
    assert "Scorer in force: online_estimator, since the checkpoint has no head." in said
    arms = as_dict(_comparison())["arms"]
    assert arms["adaptive"]["scorer"]["name"] == "online_estimator"
    assert arms["fixed"]["scorer"] is None


def test_why_nothing_was_refitted_is_told() -> None:
    said = sentences(_comparison(refits=0))
    reason = (
        "A refit comes after every 100 decode steps, and sooner at first; there were 62, the "
        "warm-up's included, so the coefficients are those it starts with."
    )
    assert reason in said
    said = sentences(_comparison(refits=2))
    assert (
        "A refit comes after every 100 decode steps, and sooner at first; there were 262, the "
        "warm-up's included." in said
    )
    assert not any("refit" in sentence for sentence in sentences(_comparison(learns=False)))


def test_without_labels_nothing_is_claimed() -> None:
    said = " ".join(sentences(_comparison(observed=False)))
    assert "Nothing was observed" in said
    assert "on average" not in said


def test_tokens_are_compared_at_temperature_zero_alone() -> None:
    assert "same tokens" not in " ".join(sentences(_comparison()))
    greedy = Settings(concurrency=(4,), num_speculative_tokens=2, temperature=0)
    said = " ".join(sentences(_comparison(settings=greedy, outputs=(7, 9))))
    assert "1 of 2 requests got the same tokens in all three arms" in said


@pytest.mark.parametrize("width", [80, 200])
def test_the_text_holds_every_figure(width: int) -> None:
    stream = io.StringIO()
    render(_comparison(), Console(file=stream, width=width))
    text = stream.getvalue()
    lines = text.splitlines()
    row = next(line.split() for line in lines if line.split()[:2] == ["adaptive", "verification"])
    assert row[2:] == ["63.8", "2.00", "80", "20", "8"]
    assert next(line.split() for line in lines if "no speculation" in line)[2:] == [
        "102.0", "2.00", "-", "-", "-",
    ]  # fmt: skip
    assert "scheduled" in text
    assert "after 2 refits: slopes log q 0.510, margin -0.020" in text
    assert next(line.split() for line in lines if "intercept" in line)[1:] == ["-0.300", "-0.100"]
    assert next(line.split() for line in lines if "predicted, 4" in line)[-2:] == ["0.45", "-"]
    serve = serve_text(Arm.ADAPTIVE, _SETTINGS, _PAIR)
    assert f"\n{serve}\n" in text
    assert lines[-1] == ask_text()
    assert all(len(line) <= width for line in text.partition("The same over HTTP")[0].splitlines())
    assert all(line == line.rstrip() for line in lines)


def test_json_holds_every_figure_and_no_texts() -> None:
    answer = json.loads(json.dumps(as_dict(_comparison())))
    load = answer["arms"]["adaptive"]["loads"][0]
    assert load["tokens_per_second"] == pytest.approx(102 / 1.6)
    assert (load["scheduled"], load["verified"], load["accepted"]) == (80, 20, 8)
    assert load["positions"][0] == {"labels": 20, "predicted_mean": 0.45, "observed_mean": 0.4}
    assert load["positions"][1] == {"labels": 0, "predicted_mean": None, "observed_mean": None}
    assert answer["arms"]["fixed"]["estimator"] is None
    # It was observed, and nothing predicted.
    assert answer["arms"]["fixed"]["loads"][0]["positions"][0] == {
        "labels": 30,
        "predicted_mean": None,
        "observed_mean": 0.4,
    }
    assert "outputs" not in load
    assert answer["says"] == sentences(_comparison())


def test_the_first_token_counts_as_no_decode_step() -> None:
    load = _load(1.0, Drafts())
    assert load.tokens_per_step == 100 / 50
    only_first = load.model_copy(update={"tokens": 2, "request_steps": 2})
    assert only_first.tokens_per_step is None


def test_predictions_are_shown_also_where_nothing_is_learnt() -> None:
    stream = io.StringIO()
    render(_comparison(learns=False), Console(file=stream, width=80))
    text = stream.getvalue()
    assert "confidence head's predictions" in text
    assert next(line.split() for line in text.splitlines() if "predicted, 4" in line)[-2:] == [
        "0.45", "-",
    ]  # fmt: skip
    assert "intercept" not in text
