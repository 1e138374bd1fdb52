"""DeepSeek V4's own choice of layers: names and caches that it refuses, and what mends them."""

from pathlib import Path

import pytest

from tests.unit.preflight.rules.applied import applied
from tests.unit.preflight.rules.cases import FEW, Case
from tests.unit.preflight.rules.conftest import Check
from vllm_av.preflight.reasons import ReasonCode as C
from vllm_av.preflight.reasons import Weight

R, U, K = Weight.REFUSAL, Weight.UNKNOWN, Weight.CAUTION
NAME, CACHE = "--attention-backend", "--kv-cache-dtype"
GENERIC, DSV4 = "FLASHINFER_MLA_SPARSE", "FLASHINFER_MLA_SPARSE_DSV4"


def v4(gpu: str, *args: str) -> Case:
    return Case(
        "V4",
        (),
        R,
        (*FEW, *args),
        spec={"method": "mtp", "num_speculative_tokens": 1},
        target="deepseek-v4-flash",
        draft=None,
        gpu=gpu,
    )


@pytest.mark.parametrize(
    ("gpu", "args", "reasons"),
    [
        ("b200", (), []),
        ("b200", (NAME, DSV4), []),
        ("b200", (NAME, "FLASHMLA_SPARSE", CACHE, "fp8"), []),
        ("b200", (NAME, GENERIC), [(C.BACKEND, R)]),
        ("b200", (NAME, "FLASHINFER_MLA_SPARSE_SM120"), [(C.BACKEND, R)]),
        ("b200", (CACHE, "bfloat16"), [(C.BACKEND, R)]),
        ("b200", (CACHE, "bfloat16", NAME, DSV4), []),
        ("b200", (CACHE, "fp8_ds_mla", NAME, DSV4), [(C.MODEL, U)]),
        ("b200", (CACHE, "bfloat16", NAME, GENERIC), [(C.BACKEND, R), (C.BACKEND, R)]),
        ("b200", ("-ac.backend", GENERIC), [(C.BACKEND, R)]),
        ("h100", (NAME, DSV4), [(C.BACKEND, R)]),
        ("mi355x", (CACHE, "bfloat16"), [(C.BACKEND, R)]),
        ("mi355x", (CACHE, "fp8_e4m3"), []),
    ],
)
def test_what_the_model_refuses_is_told_and_mended(
    gpu: str,
    args: tuple[str, ...],
    reasons: list[tuple[C, Weight]],
    checked: Check,
    tmp_path: Path,
) -> None:
    case = v4(gpu, *args)
    question = case.question(tmp_path)
    found = [each for each in checked(case, question).reasons if each.weight is not K]
    assert [(each.code, each.weight) for each in found] == reasons
    for reason in found:
        assert reason.where in args or reason.where.startswith("-ac.backend")
        question = applied(question, reason.changes)
    assert [each for each in checked(case, question).reasons if each.weight is not K] == []


def test_its_layers_are_the_models_own(checked: Check) -> None:
    layers = checked(v4("b200")).judgement.layers
    assert [(each.group.count, each.group.backend) for each in layers] == [
        (43, "DEEPSEEK_SPARSE_SWA"),
        (43, "DEEPSEEK_V4_SPARSE_MLA"),
        (63, "CompressorBackend"),
        (20, "DEEPSEEK_V4_INDEXER"),
    ]


@pytest.mark.parametrize(
    ("gpu", "files"),
    [
        ("h100", ["flashmla.py", "sparse_mla.py"]),
        ("rtx5090", ["flashinfer_sparse.py", "flashinfer_sparse.py"]),
        ("mi355x", ["rocm.py", "rocm.py"]),
    ],
)
def test_the_class_that_is_built_is_cited(gpu: str, files: list[str], checked: Check) -> None:
    layers = checked(v4(gpu)).judgement.layers[:2]
    found = [each.chosen.source.partition(":")[0] for each in layers if each.chosen]
    assert found == files


def test_other_models_are_left_to_the_selector(checked: Check) -> None:
    case = Case("plain", (), R, (*FEW, NAME, GENERIC))
    assert all("DeepSeek" not in each.asked for each in checked(case).reasons)
