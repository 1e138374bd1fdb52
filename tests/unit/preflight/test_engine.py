"""What vLLM has found against adaptive verification, in our form and beside what the rules find."""

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_av.errors import RefusedError
from vllm_av.preflight import engine
from vllm_av.preflight.reasons import Reason, ReasonCode, Weight


def blocker(kind: str, message: str = "it cannot.") -> Any:
    return SimpleNamespace(kind=kind, message=message)


def test_each_kind_has_its_code_and_keeps_its_words() -> None:
    codes = {kind: engine.reason_of(blocker(kind)).code for kind in engine._CODES}
    assert len(set(codes.values())) == len(codes)
    assert codes["lora"] is ReasonCode.LORA
    reason = engine.reason_of(blocker("query_lens", "NARROW does not."))
    assert (reason.code, reason.weight) == (ReasonCode.LENS, Weight.REFUSAL)
    assert "NARROW does not." in str(reason)


def test_a_kind_of_another_vllm_is_a_reason_too() -> None:
    reason = engine.reason_of(blocker("weather", "it rains."))
    assert (reason.code, reason.weight) == (ReasonCode.VERSION, Weight.REFUSAL)
    assert "it rains." in str(reason)


def test_what_vllm_found_is_told_once_and_never_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lora = Reason(ReasonCode.LORA, Weight.REFUSAL, "adapters", "no", "--enable-lora", "go")
    graphs = Reason(ReasonCode.GRAPHS, Weight.CAUTION, "graphs", "hm", "-cc", None)
    monkeypatch.setattr(engine, "setup_of", lambda *_: None)
    judgement = SimpleNamespace(reasons=(lora, graphs))
    monkeypatch.setattr(engine, "judge", lambda *_: judgement)
    kinds = ("lora", "cudagraphs", "weather")
    found = engine.reasons_of(None, map(blocker, kinds), None, None)
    # That of the rules for LoRA, and vLLM's own where a rule does not refuse.
    assert [(reason.code, reason.weight) for reason in found] == [
        (ReasonCode.GRAPHS, Weight.REFUSAL),
        (ReasonCode.VERSION, Weight.REFUSAL),
        (ReasonCode.LORA, Weight.REFUSAL),
        (ReasonCode.GRAPHS, Weight.CAUTION),
    ]
    assert found[2] is lora


def test_a_refusal_has_a_line_for_each_reason() -> None:
    error = RefusedError("first\n  of two", "second \x1b[31m")
    head, first, second = str(error).split("\n")
    assert head.startswith(
        "[AV-CHECK-REFUSED] adaptive verification cannot run here, for 2 reasons"
    )
    assert (first, second) == ("  first of two", "  second [31m")
    assert "for one reason, below;" in str(RefusedError("alone"))


def test_a_refusal_survives_the_way_between_processes() -> None:
    error = RefusedError("first", "second")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.reasons, str(copy)) == (RefusedError, error.reasons, str(error))
