"""The drafter a description is of. That each row is true of vLLM is tests/contract's affair."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_av.drafters import (
    HEAD_METHODS,
    KEPT,
    TYPES,
    UPSTREAM,
    WITHOUT_ESTIMATES,
    Head,
    drafter_type,
)
from vllm_av.estimator.settings import MIXED, EstimatorSettings

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = {row.name: row for row in TYPES}


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"method": "eagle"}, "eagle"),
        ({"method": "eagle3", "architectures": ["LlamaForCausalLMEagle3"]}, "eagle3"),
        ({"method": "eagle3", "parallel": True}, "parallel"),
        ({"method": "draft_model"}, "draft-model"),
        ({"method": "draft_model", "parallel": True}, "parallel"),
        ({"method": "dflash", "parallel": True}, "dflash"),
        ({"method": "dflash", "architectures": ["DFlash2DraftModel"]}, "dflash2"),
        ({"method": "dflash", "architectures": ["Other", "DFlash2BeamDraftModel"]}, "dflash2"),
        ({"method": "dflash", "architectures": ["LiLiCorrDraftModel"]}, "lilicorr"),
        ({"method": "dflash", "architectures": ["Qwen3XPressModel"]}, "xpress"),
        ({"method": "dflash", "architectures": ["DFlashQwen3XPressModel"]}, "xpress"),
        ({"method": "eagle", "architectures": ["DFlash2DraftModel"]}, "eagle"),
        ({"method": "dspark", "has_head": True}, "dspark"),
        ({"method": "dspark"}, "dspark-headless"),
        ({"method": "eagle", "has_head": True}, "eagle"),
        ({"method": "mtp"}, "mtp"),
        ({"method": "mtp", "mtp_modules": 2}, "multi-module-mtp"),
        ({"method": "deepseek_mtp"}, "mtp"),
        ({"method": "inkling_mtp", "mtp_modules": 3}, "multi-module-mtp"),
        ({"method": "gemma4_mtp"}, "gemma4-mtp"),
        # vLLM asks for Gemma first.
        ({"method": "mtp", "model_type": "gemma4_mtp", "mtp_modules": 3}, "gemma4-mtp"),
        ({"method": "ngram_gpu"}, "ngram"),
        ({"method": "mlp_speculator"}, "mlp-speculator"),
    ],
)
def test_a_drafter_is_of_the_first_type_that_fits(asked: dict[str, Any], name: str) -> None:
    assert drafter_type(**asked) is NAMES[name]


def test_a_method_of_another_vllm_is_of_no_type() -> None:
    assert drafter_type("telepathy") is None


def test_the_methods_that_configs_decide_by() -> None:
    assert {"dspark"} == HEAD_METHODS
    assert {"medusa", "mlp_speculator"} == WITHOUT_ESTIMATES - KEPT
    assert {
        "ngram", "ngram_gpu", "suffix", "custom_class", "extract_hidden_states",
    } == WITHOUT_ESTIMATES & KEPT  # fmt: skip


def test_names_are_used_once() -> None:
    assert len(NAMES) == len(TYPES)


def test_a_type_has_start_values_where_it_estimates() -> None:
    for row in TYPES:
        assert (row.start is not None) == row.estimates
        if row.start is not None and row.start != UPSTREAM:
            assert "(vLLM 52228)" in row.start.source


def test_upstream_s_start_is_the_default() -> None:
    for default in (EstimatorSettings(), MIXED):
        assert UPSTREAM.slope == default.initial_slope
        assert UPSTREAM.intercept == default.initial_intercepts


@pytest.mark.parametrize("row", [row for row in TYPES if row.estimates], ids=lambda row: row.name)
def test_a_config_starts_from_the_row_s_values(row: Any) -> None:
    spec = json.loads((CONFIGS / f"{row.name}.json").read_text())
    block = spec["adaptive_verification_config"]
    found = drafter_type(
        spec["method"],
        row.architectures,
        model_type=row.model_type,
        mtp_modules=spec["num_speculative_tokens"] if row.many_modules else 1,
        has_head=row.head is Head.HAS,
    )
    assert found is row
    assert block["scorer"] == "auto"
    # A head is never fitted.
    if row.head is Head.HAS:
        assert "estimator" not in block
    else:
        assert block["estimator"]["initial_slope"] == row.start.slope
        assert block["estimator"]["initial_intercepts"] == row.start.intercept


@pytest.mark.parametrize("row", [row for row in TYPES if row.estimates], ids=lambda row: row.name)
def test_the_readme_of_the_configs_tells_their_numbers(row: Any) -> None:
    text = (CONFIGS / "README.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith(f"| `{row.name}.json` "))
    spec = json.loads((CONFIGS / f"{row.name}.json").read_text())
    _, _, drafts, start, _ = (cell.strip() for cell in line.strip("|").split("|", 4))
    assert drafts == str(spec["num_speculative_tokens"])
    expected = "-" if row.head is Head.HAS else f"{row.start.slope}, {row.start.intercept}"
    assert start == expected


def test_the_table_imports_nothing_of_vllm() -> None:
    check = "import sys, vllm_av.drafters; sys.exit(bool({'vllm', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
