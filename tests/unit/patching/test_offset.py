"""Where a patch fits once its lines have moved: as ``git apply`` finds it, and never with fuzz."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.unit.patching.trees import BODY
from vllm_av.errors import Code, PatchError
from vllm_av.patching.diff import FileDiff, apply_diff, parse_diffs, render_diff
from vllm_av.patching.fold import render_change
from vllm_av.patching.offset import relocated
from vllm_av.patching.script import Block

PATH = "vllm/a.py"
LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n", "e\n", "f\n"]), max_size=24)


def _change(old: bytes, new: bytes | None) -> FileDiff:
    (diff,) = parse_diffs(render_change(PATH, old, new))
    return diff


def _applied(diff: FileDiff, to: bytes) -> bytes | None:
    return apply_diff(relocated(diff, to), to)[0]


def test_each_hunk_finds_its_lines() -> None:
    new = BODY.replace("line_5 = 5\n", "five = 5\nmore = 1\n").replace("line_20 = 20\n", "")
    diff = _change(BODY.encode(), new.encode())
    assert relocated(diff, BODY.encode()) == diff
    for to, wanted in (("# one\n# two\n" + BODY, "# one\n# two\n" + new), (BODY[9:], new[9:])):
        assert _applied(diff, to.encode()) == wanted.encode()
    between = ("line_12 = 12\n", "line_12 = 12\nx = 1\n")
    assert _applied(diff, BODY.replace(*between).encode()) == new.replace(*between).encode()


def test_every_context_line_counts() -> None:
    diff = _change(BODY.encode(), BODY.replace("line_5 = 5\n", "five = 5\n").encode())
    for number in range(2, 9):
        to = BODY.replace(f"line_{number} = {number}\n", "mine = 1\n").encode()
        with pytest.raises(PatchError, match="hunk at line 3 are not there") as caught:
            _applied(diff, to)
        assert caught.value.code is Code.PATCH_CONFLICT


BLOCK = "def f():\n    a\n    b\n    c\n    d\n    e\n    f\n\n"


def _blocks(*changed: int) -> bytes:
    """Four blocks that look alike, but for the line that some of them have changed."""
    other = BLOCK.replace("    c\n", "    x\n")
    return "".join(other if number in changed else BLOCK for number in range(4)).encode()


def _change_blocks(*changed: int) -> FileDiff:
    script = [Block(8 * number + 3, 1, 8 * number + 3, 1) for number in changed]
    (diff,) = parse_diffs(render_diff(PATH, _blocks(), _blocks(*changed), script))
    return diff


def test_the_nearest_place_counts() -> None:
    assert _applied(_change_blocks(2), b"# 1\n" + _blocks()) == b"# 1\n" + _blocks(2)
    assert _applied(_change_blocks(2), _blocks()[9:]) == _blocks(2)[9:]


def test_where_one_hunk_lies_the_next_is_expected() -> None:
    head = "".join(f"head {number}\n" for number in range(8))
    new = head.replace("head 4\n", "x\n")
    old, wanted = head.encode() + _blocks(), new.encode() + _blocks(1)
    script = [Block(4, 1, 4, 1), Block(19, 1, 19, 1)]
    (diff,) = parse_diffs(render_diff(PATH, old, wanted, script))
    # Five lines more: for itself, the second hunk would be nearer to the block before its own.
    more = b"# moved\n" * 5
    assert _applied(diff, more + old) == more + wanted


def test_a_hunk_at_the_edge_stays_there() -> None:
    top = _change(BODY.encode(), b"first = 1\n" + BODY.encode())
    with pytest.raises(PatchError, match="are not there"):
        _applied(top, b"# moved\n" + BODY.encode())
    bottom = _change(BODY.encode(), BODY.encode() + b"last = 1\n")
    with pytest.raises(PatchError, match="are not there"):
        _applied(bottom, BODY.encode() + b"# moved\n")
    assert _applied(bottom, b"# above\n" + BODY.encode()) == (
        b"# above\n" + BODY.encode() + b"last = 1\n"
    )


def test_files_that_come_and_go() -> None:
    (new,) = parse_diffs(render_change(PATH, None, b"a\n"))
    assert relocated(new, None) == new
    gone = _change(b"a\nb\n", None)
    assert _applied(gone, b"a\nb\n") is None
    with pytest.raises(PatchError, match="are not there"):
        _applied(gone, b"a\nb\nc\n")


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(LINES, LINES, LINES)
def test_git_takes_what_fits_and_refuses_what_does_not(
    tmp_path: Path, old: list[str], new: list[str], above: list[str]
) -> None:
    assume(old != new and old and new)
    text = render_change(PATH, "".join(old).encode(), "".join(new).encode())
    to = "".join([*above, *old]).encode()
    file = tmp_path / PATH
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(to)
    command = ["git", "apply", "--unsafe-paths", "-"]
    done = subprocess.run(command, cwd=tmp_path, input=text, capture_output=True)
    (diff,) = parse_diffs(text)
    try:
        ours = _applied(diff, to)
    except PatchError:
        assert done.returncode != 0
    else:
        assert (done.returncode, file.read_bytes()) == (0, ours)
