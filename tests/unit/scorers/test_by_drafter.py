"""What ``auto`` takes for each type of drafter, as it is listed."""

from dataclasses import replace

import pytest

from ci.drafters import BEGIN, END, section
from ci.readme import between
from vllm_av.drafters import TYPES, DraftLogits, drafter_type
from vllm_av.errors import ScorerError
from vllm_av.scorers.by_drafter import by_drafter, choose, lines


def test_every_type_is_listed_once() -> None:
    assert sorted(row.drafter.name for row in by_drafter()) == sorted(row.name for row in TYPES)


@pytest.mark.parametrize(
    ("method", "has_head", "scorer", "reason"),
    [
        ("dspark", True, "confidence_head", "the drafter's checkpoint has a confidence head"),
        ("dspark", False, "online_estimator", "the drafter's checkpoint has no confidence head"),
        ("eagle", False, "online_estimator", "the drafter's checkpoint has no confidence head"),
        ("ngram", False, None, "it copies its drafts from the text so far"),
    ],
)
def test_what_auto_takes(method: str, has_head: bool, scorer: str | None, reason: str) -> None:
    row = drafter_type(method, has_head=has_head)
    assert row is not None
    chosen = choose(row)
    assert (chosen.scorer, chosen.reason) == (scorer, reason)


def test_a_row_without_logits_and_without_a_reason_is_a_mistake() -> None:
    row = drafter_type("eagle")
    assert row is not None
    with pytest.raises(ScorerError):
        choose(replace(row, logits=DraftLogits.NONE))


def test_the_lines_hold_each_type_below_what_auto_takes() -> None:
    text = list(lines())
    heading = ""
    found = {}
    for line in text:
        if line.startswith("    "):
            found[line[4:].partition("  ")[0]] = heading
        else:
            heading = line.strip()
    assert found.keys() >= {row.title for row in TYPES if len(row.vllm) > 1}
    assert found["DSpark with its head"].startswith("auto takes confidence_head: ")
    assert found["EAGLE-3"].startswith("auto takes online_estimator: ")
    assert found["XPress (vLLM 0.33.0)"].startswith("no adaptive verification")
    assert max(map(len, text)) < 120


def test_the_readme_has_the_lines() -> None:
    assert between(BEGIN, END) == section(), "run: python -m ci.drafters"
