"""The check tells a cost table that the engine would end by, as far as a command line shows it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.preflight.rules.cases import FEW, Case
from tests.unit.preflight.rules.conftest import Check
from vllm_av.budget.costs import table
from vllm_av.errors import Code
from vllm_av.preflight.backends import gpus
from vllm_av.preflight.flags import Container
from vllm_av.preflight.question import ask
from vllm_av.preflight.reasons import Verdict, Weight

HERE = {"gpu": "auto", "here": "h100"}
GPU = gpus.named("h100")
assert GPU is not None
FITS = {
    "device": GPU.name,
    "target": "llama-3.1-8b",
    "drafter": "llama-3-8b-eagle",
    "method": "eagle",
    "num_speculative_tokens": 7,
    "max_num_seqs": 32,
    "tensor_parallel_size": 1,
    "prefill_context_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "profile_real_rows": True,
    "moe_skip_padding": True,
    "vllm": "0.33.0",
}


def case(path: Path | str, **changes: Any) -> Case:
    spec = {"adaptive_verification_config": {"budget": {"cost_table_path": str(path)}}}
    return Case("costs", (), Weight.REFUSAL, spec=spec, **HERE | changes)


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    """A table for the usual question, with the batch that vLLM takes by itself."""
    path = tmp_path / "costs.json"
    found = ask(case(path, gpu="h100").question(tmp_path)).setup
    who = FITS | {"max_num_batched_tokens": found.max_num_batched_tokens, "driver": "570.86.15"}
    table.write(path, table.CostTable(who, ([(1, 1.0)], [(1, 1.0)])))
    return path


def test_one_that_fits_is_no_reason(costs: Path, checked: Check) -> None:
    answer = checked(case(costs))
    assert (answer.verdict, answer.reasons) == (Verdict.YES, ())


def test_one_that_is_not_there_yet_is_no_reason(tmp_path: Path, checked: Check) -> None:
    assert checked(case(tmp_path / "costs.json")).reasons == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"args": ("--max-num-seqs", "16")}, "max_num_seqs is 32 there and 16 here"),
        ({"args": (*FEW, "-tp", "2")}, "tensor_parallel_size is 1 there and 2 here"),
        ({"target": "olmo-3-7b", "draft": "llama-3-8b-eagle"}, 'target is "llama-3.1-8b" there'),
        ({"draft": "llama-3.1-8b-eagle3"}, 'drafter is "llama-3-8b-eagle" there'),
        ({"installed": ("0.32.0", "applied")}, 'vllm is "0.33.0" there and "0.32.0" here'),
        (
            {"environment": {"VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS": "0"}},
            "profile_real_rows is true there and false here",
        ),
        (
            {"environment": {"VLLM_MOE_SKIP_PADDING": "0"}},
            "moe_skip_padding is true there and false here",
        ),
        ({"here": "a100"}, 'device is "h100" there and "a100" here'),
    ],
)
def test_one_of_another_engine_is_a_refusal(
    changes: dict[str, Any], told: str, costs: Path, checked: Check
) -> None:
    answer = checked(case(costs, **changes))
    assert answer.verdict is Verdict.NO
    (reason,) = [each for each in answer.reasons if each.code is Code.COST_TABLE_OTHER]
    assert reason.weight is Weight.REFUSAL
    assert told in reason.asked
    assert "remove that file" in str(reason.fix)


def test_another_number_of_drafts_is_one(costs: Path, checked: Check) -> None:
    other = case(costs)
    other = replace(other, spec={**other.spec, "num_speculative_tokens": 5})
    (reason,) = checked(other).reasons
    assert "num_speculative_tokens is 7 there and 5 here" in str(reason)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: path.write_text("{"), Code.COST_TABLE_FILE),
        (os.mkfifo, Code.COST_TABLE_FILE),
        (lambda path: path.mkdir(), Code.COST_TABLE_FILE),
        (lambda path: path.symlink_to(path), Code.COST_TABLE_FILE),
        (lambda path: path.symlink_to("none/costs.json"), Code.COST_TABLE_WRITE),
    ],
    ids=["half", "pipe", "folder", "loop", "nowhere"],
)
def test_what_is_no_table_is_one(make: Any, code: Code, tmp_path: Path, checked: Check) -> None:
    make(tmp_path / "costs.json")
    (reason,) = checked(case(tmp_path / "costs.json")).reasons
    assert (reason.code, reason.weight) == (code, Weight.REFUSAL)


@pytest.mark.parametrize("path", [5, "", None, ["x"]])
def test_a_path_that_is_none_is_left_to_who_tells_it(path: Any, checked: Check) -> None:
    spec = {"adaptive_verification_config": {"budget": {"cost_table_path": path}}}
    found = checked(Case("costs", (), Weight.REFUSAL, spec=spec)).reasons
    assert all(str(each.code).startswith("AV-CONFIG-") for each in found)
    assert bool(found) == (path is not None)


def test_a_file_of_another_machine_is_not_looked_at(tmp_path: Path, checked: Check) -> None:
    (tmp_path / "costs.json").write_text("{")
    question = case(tmp_path / "costs.json").question(tmp_path)
    contained = Container(image="vllm/vllm-openai:v0.33.0")
    for other in (
        replace(question, container=contained),
        replace(question, gpu="b200"),
        replace(question, vllm="0.32.0"),
        replace(question, args=(*question.args, "--distributed-executor-backend", "ray")),
    ):
        found = checked(case(""), other).reasons
        assert not [each for each in found if str(each.code).startswith("AV-COST")]


def test_a_folder_of_another_machine_need_not_be_here(checked: Check) -> None:
    nowhere = case("/nowhere/costs.json")
    (reason,) = checked(nowhere).reasons
    assert reason.code is Code.COST_TABLE_WRITE
    assert checked(replace(nowhere, gpu="h100")).reasons == ()


def test_what_a_command_line_shows_is_what_the_engine_compares() -> None:
    from vllm_av.budget.costs.identity import FIELDS

    assert FITS.keys() <= FIELDS.keys()
