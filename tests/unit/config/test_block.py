"""The block ``adaptive_verification_config``: what is taken, what is refused, in which words."""

import json
import pickle
import re
import time
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_av.config import (
    AdaptiveVerificationConfig,
    BudgetConfig,
    EstimatorConfig,
    Facts,
    canonical,
    examine_block,
    parse_block,
)
from vllm_av.drafters import Start
from vllm_av.errors import Code, ConfigError
from vllm_av.estimator.settings import MIXED

DEFAULT = {
    "scorer": "auto",
    "allow_lossy": False,
    "on_unsupported": "error",
    "exploration": 0.01,
    "estimator": {
        "refit_interval": None,
        "damping": None,
        "memory": 2000.0,
        "initial_slope": None,
        "initial_intercepts": None,
        "log_odds_clamp": 40.0,
    },
    "budget": {"min_predicted_gain": 0.02, "min_requests": 1, "cost_scale": 1.0},
}
# acceptance_estimator.py of vLLM 0.30 to 0.33
UPSTREAM = {
    "refit_interval": 100,
    "damping": 50.0,
    "ridge": 1e-3,
    "initial_slope": 0.5,
    "initial_intercepts": -0.2,
    "log_odds_clamp": 40.0,
}


def estimator(**settings: Any) -> dict[str, Any]:
    return {"estimator": settings}


def pooled(**settings: object) -> dict[str, Any]:
    return {"scorer": "pooled_estimator", "estimator": settings}


def budget(**settings: object) -> dict[str, Any]:
    return {"budget": settings}


def refused(block: object, **facts: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_block(block, **facts)
    assert "\n" not in str(caught.value)
    return caught.value


def test_nothing_written_is_the_default() -> None:
    assert canonical(parse_block({})) == DEFAULT


def test_the_pooled_estimator_has_upstream_s_numbers() -> None:
    found = parse_block({"scorer": "pooled_estimator"}).estimator.settings("pooled_estimator")
    assert asdict(found).items() >= UPSTREAM.items()


def test_null_is_the_scorer_s_own_and_the_type_s_start() -> None:
    start = Start(0.6, -0.5, "a test")
    config = parse_block(estimator(refit_interval=None, initial_slope=None)).estimator
    assert config.settings("online_estimator") == MIXED
    found = config.settings("online_estimator", start)
    assert (found.initial_slope, found.initial_intercepts) == (0.6, -0.5)
    given = parse_block(estimator(initial_slope=0.1, damping=7)).estimator
    found = given.settings("pooled_estimator", start)
    assert (found.initial_slope, found.initial_intercepts, found.damping) == (0.1, -0.5, 7)
    assert found.refit_interval == 100


def test_whole_numbers_are_taken_for_fractions() -> None:
    config = parse_block(estimator(damping=25, initial_slope=0, initial_intercepts=[1, 0, -1]))
    assert config.estimator.damping == 25.0
    assert config.estimator.initial_intercepts == (1.0, 0.0, -1.0)
    assert json.dumps(canonical(config)["estimator"]["initial_intercepts"]) == "[1.0, 0.0, -1.0]"


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"scorer": "confidence_head"},
        {"scorer": "max_probability", "allow_lossy": True},
        {"scorer": "pooled_estimator", **estimator(ridge=0.1)},
        {"scorer": "auto", **estimator(memory=10**4, damping=None, initial_intercepts=None)},
        {"state_file": "learnt/monday", "scorer": "pooled_estimator"},
        {"trace": "recordings/monday"},
        {"trace": None},
        budget(min_predicted_gain=0, min_requests=8, cost_scale=1, cost_table_path="costs.json"),
        {"scorer": "confidence_head", **budget(cost_table_path=None)},
        {"scorer": "online_estimator", **estimator(initial_intercepts=[0.1, 0, -0.1, 1 / 3])},
    ],
)
def test_what_was_filled_in_may_be_given_again(block: dict[str, Any]) -> None:
    config = parse_block(block)
    plain = canonical(config)
    assert json.loads(json.dumps(plain)) == plain
    assert parse_block(plain) == config
    assert canonical(parse_block(plain)) == plain


def test_a_config_cannot_be_changed_and_can_be_a_key() -> None:
    config = parse_block(estimator(initial_intercepts=[0.1, 0.2]))
    assert hash(config) == hash(parse_block(estimator(initial_intercepts=[0.1, 0.2])))
    with pytest.raises(ValueError, match="frozen"):
        config.estimator.damping = 1.0  # type: ignore[misc]


KEY, TYPE, RANGE = Code.CONFIG_KEY, Code.CONFIG_TYPE, Code.CONFIG_RANGE
COUNT, SCORER, OBJECT = Code.CONFIG_COUNT, Code.CONFIG_SCORER, Code.CONFIG_OBJECT
METHOD, UNUSED = Code.CONFIG_METHOD, Code.CONFIG_UNUSED
HUGE = 10**400  # no float holds it
ENDLESS = 10**5000  # Python refuses to write it in decimals


@pytest.mark.parametrize(
    ("code", "block", "words"),
    [
        (KEY, {"scorre": "auto"}, 'unknown key "scorre"; the keys scorer, .*; write scorer'),
        (KEY, estimator(**{"refit-interval": 5}), "estimator has .*; write refit_interval"),
        (KEY, {"damping": 5}, "; move it into adaptive_verification_config.estimator"),
        (KEY, estimator(scorer="auto"), "; move it into adaptive_verification_config"),
        (KEY, {"zzz": 5}, "; remove it"),
        (KEY, {1: 5}, "unknown key 1;"),
        (KEY, {ENDLESS: 5}, "unknown key "),
        (KEY, estimator(list=1), 'estimator has the unknown key "list"'),
        (KEY, {"number": 1}, 'unknown key "number"'),
        (KEY, {"[key]": 1}, r'unknown key "\[key\]"'),
        (KEY, {"\ud800": 1}, r'unknown key "\\ud800"'),
        (KEY, estimator(**{"\ud800": 1}), r'estimator has the unknown key "\\ud800"'),
        (TYPE, {"scorer": 5}, "scorer is 5; a name in quotes; .* the default"),
        (TYPE, {"scorer": None}, "scorer is null;"),
        (TYPE, {"state_file": 5}, "state_file is 5; a path in quotes, or null; "),
        (TYPE, {"trace": 5}, "trace is 5; a path in quotes, or null; .* the default null"),
        (RANGE, {"trace": ""}, 'trace is ""; a path in quotes, or null; correct the value'),
        (RANGE, {"trace": "x" * 5000}, r"trace is \"x{55}.*; a path in quotes, or null"),
        (TYPE, {"on_unsupported": True}, 'is true; "error" or "fixed_k"; correct .*"error"'),
        (RANGE, {"on_unsupported": "fixed"}, 'is "fixed"; "error" or "fixed_k"; correct the value'),
        (TYPE, {"allow_lossy": 1}, "allow_lossy is 1; true or false, without quotes;"),
        (TYPE, {"allow_lossy": "true"}, 'is "true"; .*; write it without quotes'),
        (TYPE, estimator(damping="50"), 'estimator.damping is "50"; a number .*without quotes'),
        (TYPE, estimator(ridge="1e-3"), r"without quotes \(in YAML 0.001 or 1.0e-3\), or"),
        (TYPE, estimator(damping=True), "estimator.damping is true; a number"),
        (TYPE, estimator(ridge=None), "estimator.ridge is null; a number"),
        (TYPE, estimator(refit_interval=True), "is true; a whole number"),
        (TYPE, estimator(refit_interval=1.5), r"is 1.5; a whole number from 1 to 1000000 \(decode"),
        (TYPE, estimator(initial_intercepts=True), "is true; a number .*, or a list"),
        (TYPE, estimator(initial_intercepts="0"), 'is "0"; a number .*, or a list'),
        (TYPE, estimator(initial_intercepts=[0, "1"]), r'initial_intercepts\[1\] is "1"; a number'),
        (TYPE, estimator(initial_intercepts=[[0]]), r"initial_intercepts\[0\] is \[0\]; a number"),
        (TYPE, estimator(initial_intercepts={"a": 1}), "initial_intercepts is {"),
        (RANGE, estimator(refit_interval=0), "is 0; a whole number from 1 "),
        (RANGE, estimator(refit_interval=10**7), "is 10000000; .* to 1000000 "),
        (RANGE, estimator(damping=-0.001), r"is -0.001; .* to 1000000 \(labels\), or null"),
        (RANGE, estimator(damping=float("nan")), "is NaN; a number from 0"),
        (RANGE, pooled(ridge=0), r"is 0; a number from 1e-09 to 1000000 "),
        (RANGE, pooled(ridge=float("inf")), "is Infinity; "),
        (RANGE, estimator(memory=9), r"is 9; a number from 10 to 1e\+09 "),
        (UNUSED, estimator(ridge=1), '; .* pooled_estimator, which alone .* "pooled_estimator"'),
        (UNUSED, pooled(memory=100), "; .* online_estimator, which alone"),
        (RANGE, estimator(initial_slope=-1), "is -1; a number from 0 to 10 "),
        (RANGE, estimator(initial_slope=1e308), r"is 1e\+308; "),
        (RANGE, estimator(initial_intercepts=81), "is 81; a number from -80 to 80, or a list"),
        (RANGE, estimator(initial_intercepts=[0, -81]), r"\[1\] is -81; a number from -80 to 80 "),
        (RANGE, estimator(initial_intercepts=[float("nan")]), r"\[0\] is NaN; "),
        (RANGE, estimator(log_odds_clamp=0.5), "is 0.5; a number from 1 to 80 "),
        (RANGE, estimator(log_odds_clamp=HUGE), r"is 10{56}\.\.\.; a number"),
        (RANGE, estimator(refit_interval=ENDLESS), "is <int, not shown>; "),
        (RANGE, estimator(damping=ENDLESS), "is <int, not shown>; "),
        (COUNT, estimator(initial_intercepts=[]), r"is \[\]; a number .* list of 1 to 1024"),
        (COUNT, estimator(initial_intercepts=[0.0] * 1025), r"is \[0\.0, .*\.\.\.; "),
        (SCORER, {"scorer": "online-estimator"}, "; one of auto, confidence_head, .*; write onl"),
        (SCORER, {"scorer": "zzz"}, '"zzz"; one of auto, .*; correct the name, or install'),
        (SCORER, {"scorer": "x\n\x1b[31m" * 99}, r'is "x\\n\\u001b\[31m.*\.\.\.; one of'),
        (OBJECT, [1], "adaptive_verification_config is .1.; an object with some of the keys"),
        (OBJECT, "auto", 'adaptive_verification_config is "auto"; an object'),
        (OBJECT, None, "adaptive_verification_config is null; "),
        (OBJECT, {"estimator": [1]}, r"estimator is \[1\]; an object .*refit_interval"),
        (OBJECT, {"estimator": None}, "estimator is null; an object"),
        (OBJECT, {"budget": 0.02}, "budget is 0.02; an object .*min_predicted_gain, min_requests"),
        (KEY, {"min_requests": 5}, "; move it into adaptive_verification_config.budget"),
        (KEY, estimator(cost_scale=5), "; move it into adaptive_verification_config.budget"),
        (KEY, budget(min_gain=0.1), "budget has .*; write min_predicted_gain"),
        (KEY, budget(**{"\ud800": 1}), r'budget has the unknown key "\\ud800"'),
        (RANGE, budget(min_predicted_gain=-0.1), r"is -0.1; .* from 0 to 100 \(share of .* 0.02$"),
        (RANGE, budget(min_predicted_gain=float("nan")), "min_predicted_gain is NaN; "),
        (RANGE, budget(min_requests=0), r"is 0; a whole number from 1 to 1000000 \(requests\)"),
        (TYPE, budget(min_requests=1.5), "is 1.5; a whole number"),
        (RANGE, budget(cost_scale=101), "cost_scale is 101; a number from 0 to 100 "),
        (TYPE, budget(cost_scale="2"), 'cost_scale is "2"; .*without quotes'),
        (TYPE, budget(cost_table_path=5), "is 5; a path in quotes, or null; .* default null"),
        (RANGE, budget(cost_table_path=""), 'is ""; a path in quotes, or null; '),
        (UNUSED, {"scorer": "confidence_head", **estimator(damping=1)}, '; .* "online_estimator"'),
        (UNUSED, {"scorer": "max_probability", **estimator(damping=50)}, "never asks it"),
    ],
)
def test_a_mistake_is_one_line_with_its_code(code: Code, block: object, words: str) -> None:
    error = refused(block)
    assert error.code is code
    assert str(error).startswith(f"[{code}] adaptive_verification_config")
    assert re.search(words, str(error)), str(error)
    assert len(str(error)) < 400


def test_the_number_of_intercepts_must_be_that_of_the_drafts() -> None:
    error = refused(estimator(initial_intercepts=[0.1, 0, -0.1, -0.2]), num_speculative_tokens=5)
    assert error.code is COUNT
    assert "has 4 numbers; one number for all positions, or 5, which is num_spec" in str(error)
    parse_block(estimator(initial_intercepts=[0.1] * 5), num_speculative_tokens=5)
    parse_block(estimator(initial_intercepts=0.1), num_speculative_tokens=5)


def test_a_head_needs_a_method_that_can_have_one() -> None:
    error = refused({"scorer": "confidence_head"}, method="eagle3")
    assert error.code is METHOD
    assert 'the method "eagle3"' in str(error)
    parse_block({"scorer": "confidence_head"}, method="dspark", has_draft_logits=False)


def test_an_estimator_that_is_no_object_is_told_once() -> None:
    numpy = pytest.importorskip("numpy")
    block = {"scorer": "confidence_head", "estimator": numpy.zeros(2)}
    assert [error.code for error in examine_block(block, Facts()).errors] == [OBJECT]


@pytest.mark.parametrize(
    "block",
    [
        estimator(initial_intercepts=["x"] * 150_000),
        estimator(initial_intercepts=["x"] * 1024),
        {f"estimatr{number}": 1 for number in range(6_000)},
        {f"estimatr{number}\ud800": 1 for number in range(6_000)},
    ],
    ids=["long list", "list", "keys", "surrogates"],
)
def test_many_mistakes_are_told_in_short(block: dict[str, Any]) -> None:
    begin = time.process_time()
    errors = examine_block(block, Facts(num_speculative_tokens=3)).errors
    assert time.process_time() - begin < 1
    if len(errors) > 1:
        assert len(errors) == 101
        assert "has more mistakes than these 100" in str(errors[-1])


@pytest.mark.parametrize("scorer", ["online_estimator", "max_probability"])
def test_a_scorer_that_reads_logits_needs_them(scorer: str) -> None:
    error = refused({"scorer": scorer}, has_draft_logits=False)
    assert error.code is METHOD
    assert "set use_local_argmax_reduction to false" in str(error)


@pytest.mark.parametrize("scorer", ["confidence_head", "max_probability"])
def test_what_learns_nothing_keeps_no_state(scorer: str) -> None:
    error = refused({"scorer": scorer, "state_file": "monday"})
    assert error.code is Code.CONFIG_UNUSED
    assert f'state_file is "monday", with the scorer "{scorer}"' in str(error)


def test_a_trace_needs_logits_whatever_the_scorer() -> None:
    block = {"scorer": "confidence_head", "trace": "monday"}
    error = refused(block, method="dspark", has_draft_logits=False)
    assert error.code is Code.CONFIG_METHOD
    assert 'trace is "monday", with use_local_argmax_reduction true' in str(error)


def test_the_first_of_several_mistakes_in_the_text_is_told_and_the_others_counted() -> None:
    block = {
        "estimator": {"zzz": 1, "damping": -1, "refit_interval": "x"},
        "scorer": "nobody",
        "allow_lossy": 0,
    }
    error = refused(block)
    assert [error.code, *(other.code for other in error.others)] == [KEY, RANGE, TYPE, SCORER, TYPE]
    assert str(error).endswith(
        "; remove it (and 4 more: AV-CONFIG-RANGE, AV-CONFIG-TYPE, AV-CONFIG-SCORER, ...)"
    )
    verdict = examine_block(block, Facts())
    assert verdict.config is None
    assert [str(each) for each in verdict.errors][1:] == [str(each) for each in error.others]
    # The order is that of the text, not that of the fields.
    turned = dict(reversed(block.items()))
    assert [each.code for each in examine_block(turned, Facts()).errors][:2] == [TYPE, SCORER]


def test_an_error_with_others_survives_the_way_between_processes() -> None:
    error = refused({"zzz": 1, "scorer": 3})
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ConfigError
    assert str(copy) == str(error)
    assert copy.others[0].code is TYPE


@pytest.mark.parametrize("model", [AdaptiveVerificationConfig, BudgetConfig, EstimatorConfig])
def test_every_key_says_what_it_means(model: Any) -> None:
    schema = model.model_json_schema()
    assert schema["additionalProperties"] is False
    for name, entry in schema["properties"].items():
        assert entry["description"].endswith("."), name
        group = name in ("estimator", "budget")
        assert "default" in entry or group
        assert entry.get("unit") or group, name


_KEYS = st.sampled_from(
    [
        *AdaptiveVerificationConfig.model_fields,
        *EstimatorConfig.model_fields,
        *BudgetConfig.model_fields,
        "zzz",
        "-",
        "",
        "list",
        "\ud800",
    ]
)
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
_NAMES = st.sampled_from(
    ["auto", "confidence_head", "online_estimator", "pooled_estimator", "max_probability"]
)
_ANY = st.recursive(
    _PLAIN | _NAMES | st.floats(-1, 60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(_ANY | st.dictionaries(_KEYS, _ANY, max_size=4), st.none() | st.integers(1, 3))
def test_whatever_is_written_is_taken_or_told_in_lines(block: Any, count: int | None) -> None:
    verdict = examine_block(block, Facts(num_speculative_tokens=count))
    assert (verdict.config is None) == bool(verdict.errors)
    for error in verdict.errors:
        assert str(error).isprintable(), repr(str(error))
        assert str(error).isascii()
        assert len(str(error)) < 500
    if verdict.config is not None:
        plain = canonical(verdict.config)
        assert parse_block(plain, num_speculative_tokens=count) == verdict.config or (
            "estimator" not in plain
        )
        assert json.loads(json.dumps(plain, allow_nan=False)) == plain
