"""From what the engine says of a step to rows: whose drafts they are, and what became of them."""

from typing import Any

import numpy as np

from vllm_av.replay.columns import COLUMNS
from vllm_av.replay.grades import SLOT_COLUMNS, Grades

K = 3
TEMPERATURE = SLOT_COLUMNS.index("temperature")


def drafts(*rows: float, of: int = K) -> Any:
    """A request a number: its log-odds are number + position / 10; ``of`` K positions drafted."""
    found = np.full((len(rows), K, len(SLOT_COLUMNS)), np.nan, np.float32)
    for row, value in enumerate(rows):
        for position in range(of):
            found[row, position] = 0.5
            found[row, position, 0] = value + position / 10
            found[row, position, TEMPERATURE] = value
    return found


def said(*rows: tuple[int, int, int, int]) -> Any:
    return np.array(rows, np.int32).reshape(-1, 4)


def started(*slots: int) -> Grades:
    """Requests in these slots, with their prompts behind them."""
    grades = Grades(8)
    for slot in slots:
        grades.add_request(slot)
    rows = grades.rows(
        drafts(*[9.0] * len(slots)), said(*[(s, 1, 0, 0) for s in slots]), now(grades)
    )
    assert len(rows["step"]) == 0
    return grades


def now(grades: Grades) -> Any:
    return grades.now().copy()


def test_every_column_of_the_format_is_made() -> None:
    grades = started(0)
    rows = grades.rows(drafts(1.0), said((0, 1, 3, 0)), now(grades))
    assert rows.keys() == COLUMNS.keys()
    assert {len(values) for values in rows.values()} == {K}


def test_accepted_and_verified_follow_from_what_was_sampled_and_rejected() -> None:
    grades = started(0, 1, 2, 3)
    # All three accepted; one accepted, one rejected, one trimmed; all rejected; all trimmed.
    verdict = said((0, 4, 0, 0), (1, 2, 1, 0), (2, 1, 3, 0), (3, 1, 0, 0))
    rows = grades.rows(drafts(0.0, 1.0, 2.0, 3.0), verdict, now(grades))
    assert rows["accepted"].reshape(4, K).tolist() == [
        [True, True, True], [True, False, False], [False] * 3, [False] * 3,
    ]  # fmt: skip
    assert rows["verified"].reshape(4, K).tolist() == [
        [True, True, True], [True, True, False], [True] * 3, [False] * 3,
    ]  # fmt: skip
    assert rows["position"].tolist() == [0, 1, 2] * 4
    assert rows["request"].tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    np.testing.assert_allclose(rows["log_odds"][3:6], [1.0, 1.1, 1.2], rtol=1e-6)


def test_a_request_in_its_prompt_has_no_rows() -> None:
    grades = started(0)
    rows = grades.rows(drafts(0.0, 1.0), said((0, 1, 3, 0), (1, 0, 0, 0)), now(grades))
    assert set(rows["request"]) == {0}


def test_what_an_earlier_request_left_in_the_slot_is_nobody_s() -> None:
    grades = started(5)
    grades.rows(drafts(1.0), said((5, 2, 2, 0)), now(grades))
    grades.add_request(5)
    # The new one's prompt, in two pieces; what was drafted during it was thrown away.
    assert len(grades.rows(drafts(7.0), said((5, 0, 0, 0)), now(grades))["step"]) == 0
    assert len(grades.rows(drafts(8.0), said((5, 1, 0, 0)), now(grades))["step"]) == 0
    rows = grades.rows(drafts(2.0), said((5, 1, 3, 0)), now(grades))
    assert rows["request"].tolist() == [1] * 3
    assert rows["temperature"].tolist() == [2.0] * 3


def test_who_held_the_slot_is_asked_of_the_step_and_not_of_the_moment() -> None:
    grades = started(0)
    then = now(grades)
    grades.add_request(0)  # before the copy of the step has arrived
    rows = grades.rows(drafts(1.0), said((0, 1, 3, 0)), then)
    assert rows["request"].tolist() == [0] * 3
    assert len(grades.rows(drafts(1.0), said((0, 1, 0, 0)), now(grades))["step"]) == 0
    assert grades.rows(drafts(1.0), said((0, 4, 0, 0)), now(grades))["request"].tolist() == [1] * 3


def test_requests_are_numbered_as_they_appear() -> None:
    grades = started(3, 1, 2)
    first = grades.rows(drafts(1.0), said((2, 1, 3, 0)), now(grades))
    second = grades.rows(drafts(1.0, 1.0), said((3, 1, 3, 0), (2, 1, 3, 0)), now(grades))
    assert first["request"].tolist() == [0] * 3
    assert second["request"].tolist() == [1] * 3 + [0] * 3


def test_a_step_counts_whether_or_not_it_has_rows() -> None:
    grades = started(0)
    grades.rows(drafts(), said(), now(grades))
    rows = grades.rows(drafts(1.0), said((0, 1, 3, 0)), now(grades))
    assert rows["step"].tolist() == [3] * 3


def test_positions_that_were_not_drafted_are_no_rows() -> None:
    grades = started(0)
    rows = grades.rows(drafts(1.0, of=2), said((0, 1, 2, 0)), now(grades))
    assert rows["position"].tolist() == [0, 1]
    assert len(grades.rows(drafts(1.0, of=0), said((0, 1, 0, 0)), now(grades))["step"]) == 0
    assert grades.drafts == 1


def test_reasons_and_workloads_are_words() -> None:
    grades = Grades(4)
    grades.add_request(0, "docs")
    grades.add_request(1)
    grades.add_request(2, "docs")
    verdict = said((0, 1, 0, 0), (1, 1, 0, 0), (2, 1, 0, 0))
    grades.rows(drafts(1.0, 1.0, 1.0), verdict, now(grades))
    verdict = said((0, 1, 3, 0), (1, 1, 3, 0b100000001), (2, 1, 3, 1))
    rows = grades.rows(drafts(1.0, 1.0, 1.0), verdict, now(grades))
    told = [grades.words["masked"][n] if n >= 0 else None for n in rows["masked"][::K]]
    assert told == [None, "top_k+grammar", "top_k"]
    assert [n >= 0 for n in rows["workload"][::K]] == [True, False, True]
    assert grades.words["workload"] == ["docs"]


def test_the_books_do_not_grow_with_the_requests() -> None:
    grades = Grades(8)
    for number in range(500):
        grades.add_request(number % 8)
        grades.rows(drafts(1.0), said((number % 8, 1, 0, 0)), now(grades))
        rows = grades.rows(drafts(1.0), said((number % 8, 1, 3, 0)), now(grades))
        assert rows["request"].tolist() == [number] * 3
    assert len(grades._sampled) <= 17
    assert len(grades._numbers) <= 17
