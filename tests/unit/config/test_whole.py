"""The block within a whole config: which of the two a text is, and what stands beside the block."""

import json
import shlex
from typing import Any

import pytest

from vllm_av.config.whole import argument, examine, examine_spec
from vllm_av.errors import Code

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


def test_what_is_filled_in_keeps_all_else() -> None:
    document = {"model": "it's", "adaptive-verification-config": {}, **ON}
    filled = examine(document).filled()
    assert list(filled) == ["model", BLOCK, "enable_adaptive_verification"]
    assert filled[BLOCK]["estimator"]["damping"] == 50
    flag, text = shlex.split(argument(filled))
    assert flag == "--speculative-config"
    assert json.loads(text) == filled


def test_nothing_is_filled_in_where_it_is_off() -> None:
    assert examine({"method": "ngram"}).filled() == {"method": "ngram"}
    assert examine({"method": "ngram"}).block() is None
    assert examine(ON).filled()[BLOCK]["scorer"] == "auto"
