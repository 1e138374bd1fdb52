"""The patch status as the doctor sees it."""

import csv
import sys

import pytest

from vllm_av.doctor.patches import Patches, read_patches
from vllm_av.errors import Code, PatchError
from vllm_av.patching import status


def test_the_answer_of_the_patch_tool_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = status.Status(
        status.State.APPLIED, "line", patches=("cpu/a.patch",), files=("vllm/a.py",)
    )
    monkeypatch.setattr(status, "status", lambda: found)
    assert read_patches() == Patches("applied", "line", None, ("cpu/a.patch",), ("vllm/a.py",))


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (PatchError(Code.PATCH_TWO_VLLM, "two", "one", "fix"), Code.PATCH_TWO_VLLM, "two; fix"),
        (PermissionError("denied"), Code.PATCH_STATE, "denied"),
        (csv.Error("a record of bytes"), Code.PATCH_STATE, "a record of bytes"),
    ],
)
def test_a_tool_that_refuses_stops_nothing(
    error: Exception, code: Code, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses() -> None:
        raise error

    monkeypatch.setattr(status, "status", refuses)
    found = read_patches()
    assert (found.state, found.code) == ("unknown", code)
    assert words in found.line


def test_a_tool_that_cannot_be_loaded_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm_av.patching.status", None)
    assert read_patches().code is Code.VERB_IMPORT
