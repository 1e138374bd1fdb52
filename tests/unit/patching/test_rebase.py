"""Two changes of one text, in either order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.patching.trees import MESSAGE, WHEN
from vllm_av.errors import Code, PatchError
from vllm_av.patching.diff import apply_diff, parse_diffs, render_diff
from vllm_av.patching.fold import new_patch
from vllm_av.patching.rebase import Edit, move
from vllm_av.patching.series import Step, apply_patch

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"\n"]), max_size=30)
TEXTS = st.builds(lambda lines, end: b"".join([*lines, end]), LINES, st.sampled_from([b"", b"e"]))
PATH = "vllm/a.py"


def _texts(*changes: tuple[int, bytes]) -> bytes:
    lines = [b"line %d\n" % number for number in range(20)]
    for at, new in changes:
        lines[at] = new
    return b"".join(lines)


def _step(name: str, before: bytes | None, after: bytes | None) -> Step:
    patch = new_patch(name, MESSAGE.format(title="It"), {PATH: before}, {PATH: after}, WHEN)
    return apply_patch(patch, {PATH: before})


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_either_order_makes_the_same(base: bytes, first: bytes, second: bytes) -> None:
    x, y = Edit.between(base, first), Edit.between(base, second)
    x_after_y, y_after_x = x.onto(y), y.onto(x)
    assert (x_after_y is None) == (y_after_x is None)
    if x_after_y is None or y_after_x is None:
        return
    assert x_after_y.old == second
    assert y_after_x.old == first
    assert x_after_y.new == y_after_x.new
    # The scripts are scripts between these very texts: patches written from them apply.
    for edit in (x_after_y, y_after_x, x_after_y.reversed()):
        if edit.script:
            (diff,) = parse_diffs(render_diff(PATH, edit.old, edit.new, edit.script))
            assert apply_diff(diff, edit.old)[0] == edit.new


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 19), st.sampled_from([b"", b"x\n", b"x\ny\n"]))))
def test_changes_of_other_lines_never_clash(changes: list[tuple[int, bytes]]) -> None:
    odd = [(at, new) for at, new in changes if at % 2]
    even = [(at, new) for at, new in changes if not at % 2]
    merged = Edit.between(_texts(), _texts(*odd)).onto(Edit.between(_texts(), _texts(*even)))
    if merged is not None:  # deletions around a kept line may be cut otherwise
        assert merged.new == _texts(*changes)


def test_the_same_lines_clash() -> None:
    base = _texts()
    one = Edit.between(base, _texts((5, b"mine\n")))
    for other in (_texts((5, b"yours\n")), _texts((4, b""), (5, b""), (6, b"")), b""):
        assert one.onto(Edit.between(base, other)) is None
    insertion = Edit.between(base, _texts((5, b"line 5\nmine\n")))
    assert insertion.onto(Edit.between(base, _texts((5, b"line 5\nyours\n")))) is None
    next_line = insertion.onto(Edit.between(base, _texts((6, b"yours\n"))))
    assert next_line is not None
    assert next_line.new == _texts((5, b"line 5\nmine\n"), (6, b"yours\n"))


def test_an_end_without_a_newline_clashes_with_lines_that_follow() -> None:
    base = b"a\nb\n"
    shorter, longer = Edit.between(base, b"a\nb"), Edit.between(base, b"a\nb\nc\n")
    assert shorter.onto(longer) is None
    assert longer.onto(shorter) is None


def test_an_edit_moves_to_its_place_and_the_steps_follow() -> None:
    texts = [_texts(), _texts((2, b"x\ny\n")), _texts((2, b"x\ny\n"), (9, b""))]
    steps = [_step("cpu/a.patch", *texts[:2]), _step("cpu/b.patch", *texts[1:])]
    edited = _texts((2, b"x\ny\n"), (9, b""), (15, b"mine\n"))
    moved, change = move(steps, PATH, (texts[2], edited), 2, 0)
    assert change == (_texts(), _texts((15, b"mine\n")))
    assert [step.before[PATH] for step in moved] == [
        _texts((15, b"mine\n")),
        _texts((2, b"x\ny\n"), (15, b"mine\n")),
    ]
    assert moved[1].after[PATH] == edited
    # Made before both, it comes behind them.
    moved, change = move(steps, PATH, (_texts(), _texts((15, b"mine\n"))), 0, 2)
    assert change == (texts[2], edited)
    assert moved == steps
    # Made before both and staying there: the steps follow.
    moved, change = move(steps, PATH, (_texts(), _texts((15, b"mine\n"))), 0, 0)
    assert change == (_texts(), _texts((15, b"mine\n")))
    assert moved[1].after[PATH] == edited


@pytest.mark.parametrize(
    ("before", "after", "edited"),
    [(None, b"a\n", b"b\n"), (b"a\n", None, b"b\n"), (b"a\n", b"b\n", None)],
)
def test_a_file_that_comes_or_goes_is_not_moved_past(
    before: bytes | None, after: bytes | None, edited: bytes | None
) -> None:
    steps = [_step("cpu/a.patch", before, after)]
    with pytest.raises(PatchError, match=r"where cpu/a\.patch changes it too") as caught:
        move(steps, PATH, (after, edited), 1, 0)
    assert caught.value.code is Code.PATCH_EXPORT
