"""The block within a whole config: which of the two a text is, and what stands beside the block."""

import json
import shlex
import time
from typing import Any

import pytest

from vllm_av.config.whole import argument, examine, examine_spec
from vllm_av.drafters import KEPT, WITHOUT_ESTIMATES, drafter_type
from vllm_av.errors import Code, ConfigError
from vllm_av.seams.arguments import check
from vllm_av.seams.contract import Seams

ON = {"enable_adaptive_verification": True}
BLOCK = "adaptive_verification_config"


@pytest.mark.parametrize(
    ("document", "whole"),
    [
        ({}, False),
        ({"scorer": "auto"}, False),
        ({"estimator": {}}, False),
        ({"scorre": "auto"}, False),
        ({BLOCK: {}}, True),
        ({"adaptive-verification-config": {}}, True),
        ({"adaptive_verification_confg": {}}, True),
        ({"enable_adaptive_verification": False}, True),
        ({"model": "DRAFT", "scorer": "auto"}, True),
        ({"method": "ngram"}, True),
        ({"num-speculative-tokens": 3}, True),
    ],
)
def test_what_a_text_is_shows_in_its_keys(document: dict[str, Any], whole: bool) -> None:
    assert (examine(document).whole is not None) == whole


@pytest.mark.parametrize("document", [[1], "auto", 5, None])
def test_what_is_no_object_is_refused(document: object) -> None:
    (error,) = examine(document).errors
    assert error.code is Code.CONFIG_OBJECT


@pytest.mark.parametrize(
    ("spec", "codes"),
    [
        ({}, None),
        (ON, None),
        ({**ON, BLOCK: None}, None),
        ({**ON, BLOCK: {}}, []),
        ({"enable-adaptive-verification": "yes", "adaptive-verification-config": {}}, []),
        ({BLOCK: {}}, [Code.CONFIG_OFF]),
        ({"enable_adaptive_verification": False, BLOCK: {"zzz": 1}}, ["OFF", "KEY"]),
        ({"enable_adaptive_verification": "x", BLOCK: {}}, ["OFF"]),
        ({**ON, BLOCK: []}, ["OBJECT"]),
        ({**ON, BLOCK: {}, "adaptive-verification-config": {}}, ["KEY"]),
        ({**ON, "adaptive_verification": {}}, ["KEY"]),
        ({"Enable_adaptive_verfication": True}, ["KEY"]),
        (
            {**ON, "num_speculative_tokens": 3, BLOCK: {"estimator": {"initial_intercepts": [1]}}},
            ["COUNT"],
        ),
        (
            {
                **ON,
                "num_speculative_tokens": True,
                BLOCK: {"estimator": {"initial_intercepts": [1]}},
            },
            [],
        ),
        ({**ON, "method": "eagle", BLOCK: {"scorer": "confidence_head"}}, ["METHOD"]),
        ({**ON, "method": "suffix", BLOCK: {"scorer": "confidence_head"}}, ["METHOD"]),
        ({**ON, "method": "suffix"}, ["METHOD"]),
        ({"method": "suffix"}, None),
        ({**ON, "method": "eagle", "parallel_drafting": True}, ["METHOD"]),
        ({**ON, "method": "eagle3", "parallel-drafting": "yes", BLOCK: {}}, ["METHOD"]),
        (
            {**ON, "method": "draft_model", "parallel_drafting": 1, BLOCK: {"zzz": 1}},
            ["METHOD", "KEY"],
        ),
        ({**ON, "method": "mtp", "parallel_drafting": True}, ["METHOD"]),
        ({**ON, "method": "eagle", "parallel_drafting": False}, None),
        ({**ON, "method": "dflash", "parallel_drafting": True}, None),
        ({**ON, "parallel_drafting": True}, None),
        ({"method": "eagle", "parallel_drafting": True}, None),
        ({**ON, "adaptive_verification": {}, BLOCK: {"zzz": 1}}, ["KEY", "KEY"]),
        ({"enable_adaptive_verfication": True, BLOCK: {"scorer": 1}}, ["KEY", "TYPE"]),
        ({**ON, "adaptive_verification_confg": {"scorer": 1}}, ["KEY", "TYPE"]),
        (
            {**ON, "num_speculative_tokens": 0, BLOCK: {"estimator": {"initial_intercepts": [1]}}},
            [],
        ),
        ({**ON, "method": "eagle", "use_local_argmax_reduction": True, BLOCK: {}}, ["METHOD"]),
        ({**ON, "method": "eagle", "use_local_argmax_reduction": True}, ["METHOD"]),
        ({**ON, "method": "dspark", "use_local_argmax_reduction": True, BLOCK: {}}, []),
        ({**ON, "use_local_argmax_reduction": True, BLOCK: {}}, []),
        ({**ON, "method": "dspark", BLOCK: {"scorer": "confidence_head"}}, []),
        (
            {**ON, "use_local_argmax_reduction": True, BLOCK: {"scorer": "max_probability"}},
            ["METHOD"],
        ),
    ],
)
def test_what_stands_beside_the_block_decides_with_it(
    spec: dict[str, Any], codes: list[str] | None
) -> None:
    verdict = examine_spec(spec)
    if codes is None:
        assert verdict is None
        return
    assert verdict is not None
    assert [error.code.removeprefix("AV-CONFIG-") for error in verdict.errors] == [
        code.removeprefix("AV-CONFIG-") for code in codes
    ]
    assert (verdict.config is None) == bool(codes)


def test_a_method_that_vllm_may_still_change_decides_nothing() -> None:
    spec = {**ON, "method": "eagle", BLOCK: {"scorer": "confidence_head"}}
    verdict = examine_spec(spec, know_method=False)
    assert verdict is not None
    assert verdict.config is not None


@pytest.mark.parametrize("method", sorted(KEPT))
def test_a_method_without_estimates_is_left_to_the_check_of_everything(method: str) -> None:
    check({**ON, "method": method}, Seams.ALL)
    wrong = {**ON, "method": method, "adaptive_verification_config": {"scorre": "auto"}}
    with pytest.raises(ConfigError) as caught:
        check(wrong, Seams.ALL)
    assert (caught.value.code, caught.value.others) == (Code.CONFIG_KEY, ())


@pytest.mark.parametrize("method", sorted(WITHOUT_ESTIMATES))
def test_a_method_without_estimates_is_refused_with_its_reason(method: str) -> None:
    (error,) = examine({**ON, "method": method}).errors
    row = drafter_type(method)
    assert row is not None
    assert error.code is Code.CONFIG_METHOD
    assert f"({row.refusal})" in error.given


def test_parallel_drafting_is_refused_by_its_name() -> None:
    spec = {"method": "eagle", "parallel_drafting": True, "num_speculative_tokens": 4, **ON}
    (error,) = examine(spec).errors
    assert 'the method "eagle" and parallel_drafting, which cannot have it' in error.given
    assert "the V2 runner does not offer it" in error.given
    assert error.fix.endswith("or remove parallel_drafting")
    check(spec, Seams.ALL)  # vLLM may still find another method


def test_a_method_that_vllm_may_replace_is_left_to_it() -> None:
    check({**ON, "method": "medusa"}, Seams.ALL)


def test_many_wrong_outer_keys_are_told_in_short() -> None:
    begin = time.process_time()
    verdict = examine_spec({f"adaptive_verification_config{n}": 1 for n in range(6_000)})
    assert time.process_time() - begin < 2
    assert verdict is not None
    assert len(verdict.errors) == 101


def test_an_argument_is_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        argument({"a": float("inf")})


def test_what_is_filled_in_keeps_all_else() -> None:
    document = {"model": "it's", "adaptive-verification-config": {}, **ON}
    filled = examine(document).filled()
    assert list(filled) == ["model", BLOCK, "enable_adaptive_verification"]
    assert filled[BLOCK]["estimator"]["memory"] == 2000
    flag, text = shlex.split(argument(filled))
    assert flag == "--speculative-config"
    assert json.loads(text) == filled


def test_nothing_is_filled_in_where_it_is_off() -> None:
    assert examine({"method": "ngram"}).filled() == {"method": "ngram"}
    assert examine({"method": "ngram"}).block() is None
    assert examine(ON).filled()[BLOCK]["scorer"] == "auto"
