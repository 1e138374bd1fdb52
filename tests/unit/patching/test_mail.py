"""Heads of new patches, as git would write them."""

from datetime import UTC, datetime

import pytest

from vllm_av.patching.mail import compose_head


@pytest.mark.parametrize(
    ("day", "written"),
    [(1, "Tue, 1 Dec 2026 00:07:00 +0000"), (10, "Thu, 10 Dec 2026 00:07:00 +0000")],
)
def test_the_day_of_a_date_is_not_padded(day: int, written: str) -> None:
    head = compose_head("[CPU] Title\n\nBody.\n", datetime(2026, 12, day, 0, 7, tzinfo=UTC))
    assert f"\nDate: {written}\n".encode() in head
