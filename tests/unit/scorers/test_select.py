"""The choice: auto's rule, and the user's word over it."""

import pytest

from vllm_av.errors import ScorerError
from vllm_av.scorers.select import require, select


@pytest.mark.parametrize("has_logits", [True, False])
def test_auto_takes_the_head_where_there_is_one(has_logits: bool) -> None:
    selection = select("auto", has_head=True, has_logits=has_logits)
    assert selection.name == "confidence_head"
    assert selection.reason == "the drafter's checkpoint has a confidence head"


def test_auto_takes_the_estimator_where_there_is_no_head() -> None:
    selection = select("auto", has_head=False, has_logits=True)
    assert selection.name == "online_estimator"
    assert selection.reason == "the drafter's checkpoint has no confidence head"


def test_auto_refuses_a_drafter_with_neither() -> None:
    with pytest.raises(ScorerError) as caught:
        select("auto", has_head=False, has_logits=False)
    line = str(caught.value)
    assert line.startswith("[AV-SCORER-NEEDS]")
    assert "set use_local_argmax_reduction to false" in line


@pytest.mark.parametrize(
    ("choice", "has_head", "reason"),
    [
        ("online_estimator", True, "auto is confidence_head"),
        ("online_estimator", False, "auto would choose it too"),
        ("confidence_head", True, "auto would choose it too"),
        ("confidence_head", False, "auto is online_estimator"),
        ("theirs", True, "auto is confidence_head"),
    ],
)
def test_a_name_is_taken_whatever_auto_is(choice: str, has_head: bool, reason: str) -> None:
    selection = select(choice, has_head=has_head, has_logits=True)
    assert selection.name == choice
    assert selection.reason == f"named in adaptive_verification_config; {reason}"


def test_a_name_is_taken_where_auto_would_refuse() -> None:
    assert select("theirs", has_head=False, has_logits=False).name == "theirs"


@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize("has_logits", [True, False])
@pytest.mark.parametrize("needs_head", [True, False])
@pytest.mark.parametrize("needs_logits", [True, False])
def test_what_a_scorer_needs_must_be_there(
    needs_logits: bool, needs_head: bool, has_logits: bool, has_head: bool
) -> None:
    def ask() -> None:
        require(
            "theirs",
            needs_head=needs_head,
            needs_logits=needs_logits,
            has_head=has_head,
            has_logits=has_logits,
        )

    lacks_head, lacks_logits = needs_head and not has_head, needs_logits and not has_logits
    if not (lacks_head or lacks_logits):
        ask()
        return
    with pytest.raises(ScorerError) as caught:
        ask()
    line = str(caught.value)
    thing, fix = (
        ("a confidence head", 'set "scorer": "auto"')
        if lacks_head
        else ("draft logits", "set use_local_argmax_reduction to false")
    )
    assert line.startswith(f"[AV-SCORER-NEEDS] the scorer 'theirs' needs {thing}")
    assert line.endswith(fix)
