"""What a build is told, before anything of the image is looked at."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ci.image.refusal import Refusal
from ci.image.steps import LAST_SECOND, Job, build, created
from ci.image.targets import GPU
from vllm_av.patching.state import FileState


@pytest.mark.parametrize("second", [0, 1700000000, LAST_SECOND])
def test_a_time_is_seconds_since_1970_and_can_be_recorded(second: int) -> None:
    at = created({"SOURCE_DATE_EPOCH": str(second)})
    assert (at.timestamp(), at.tzinfo) == (second, UTC)
    assert FileState.of(b"", 0o644, second * 10**9).mtime_ns == second * 10**9


@pytest.mark.parametrize(
    "said",
    ["tomorrow", "1e9", "-5", " 5", "\u0661", str(LAST_SECOND + 1), "99999999999", "9" * 5000],
)
def test_a_time_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(Refusal, match=r"\[AV-IMAGE-BASE\] SOURCE_DATE_EPOCH is '.*from 0 to 92"):
        created({"SOURCE_DATE_EPOCH": said})


def test_without_one_it_is_now() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    assert before <= created({}) <= datetime.now(UTC)


@pytest.mark.parametrize("reference", ["", "a b", "a\nb", "\u00e4", os.fsdecode(b"a\xff")])
def test_a_base_that_no_reference_names_is_refused(reference: str, tmp_path: Path) -> None:
    job = Job(tmp_path, GPU, reference, tmp_path, "")
    with pytest.raises(Refusal, match=r"\[AV-IMAGE-BASE\] --base is '") as refused:
        build(job, {})
    assert str(refused.value).isascii()
