"""Every code is given by a real question, alone and beside others, and every fix mends it."""

from pathlib import Path

import pytest

from tests.unit.preflight.rules.applied import applied
from tests.unit.preflight.rules.cases import CASES, Case
from tests.unit.preflight.rules.conftest import Check
from vllm_av.preflight.reasons import ReasonCode, Verdict, Weight

NAMES = [case.name for case in CASES]
VERDICTS = {
    Weight.REFUSAL: Verdict.NO,
    Weight.UNKNOWN: Verdict.UNKNOWN,
    Weight.CAUTION: Verdict.YES,
}


def test_nothing_is_said_of_a_question_that_has_nothing_wrong(checked: Check) -> None:
    answer = checked(Case("all right", (), Weight.CAUTION))
    assert (answer.verdict, answer.reasons) == (Verdict.YES, ())
    assert [layer.chosen.name for layer in answer.judgement.layers if layer.chosen] == [
        "FLASH_ATTN"
    ]
    assert answer.judgement.scorer.name == "online_estimator"


def test_every_code_has_a_case() -> None:
    assert {code for case in CASES for code in case.codes} == set(ReasonCode)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_code_is_given_alone(case: Case, checked: Check) -> None:
    answer = checked(case)
    found = [(reason.code, reason.weight) for reason in answer.reasons]
    assert found == list(zip(case.codes, case.weights, strict=True))
    assert answer.verdict is VERDICTS[case.weights[0]]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_fix_mends_it(case: Case, checked: Check, tmp_path: Path) -> None:
    question = case.question(tmp_path)
    before = checked(case)
    for reason in before.reasons:
        assert reason.fix
        if not reason.changes:
            continue
        after = checked(case, applied(question, reason.changes))
        assert reason.code not in {each.code for each in after.reasons}, str(reason)
        new = [each for each in after.reasons if each not in before.reasons]
        assert all(each.weight is Weight.CAUTION for each in new), str(reason)
