"""A series carried over, in memory."""

from pathlib import Path

from tests.unit.patching.trees import BODY, write_series
from vllm_av.patching.carry import carry_series
from vllm_av.patching.series import apply_patch

PATH = "vllm/config.py"


def test_a_patch_that_changes_nothing_any_more_is_taken(tmp_path: Path) -> None:
    mine = BODY.replace("line_3 = 3\n", "line_3 = 33\n")
    start = {PATH: BODY.encode()}
    series = write_series(
        tmp_path, {PATH: mine.encode()}, version="0.40.0", start=start, names=["core/one.patch"]
    )
    step = apply_patch(series.patches[0], {**start})
    # Upstream took it, and then changed a line of its context.
    theirs = {PATH: mine.replace("line_5 = 5\n", "line_5 = 55\n").encode()}
    found = carry_series([step], start.get, theirs.get, lambda path: ())
    assert found.taken == ("core/one.patch",)
    assert (found.steps, found.held) == ((), ())
