"""One patch's change of a file, carried over to another text of it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_av.patching.diff import apply_diff, parse_diffs, render_diff
from vllm_av.patching.rebase import Edit
from vllm_av.patching.script import split_lines
from vllm_av.patching.threeway import carry, marked

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"\n"]), max_size=30)
TEXTS = st.builds(lambda lines, end: b"".join([*lines, end]), LINES, st.sampled_from([b"", b"e"]))
PATH = "vllm/a.py"
BASE = b"".join(b"line %d\n" % number for number in range(20))


def _changed(*changes: tuple[int, bytes], text: bytes = BASE) -> bytes:
    lines = text.splitlines(keepends=True)
    for at, new in changes:
        lines[at] = new
    return b"".join(lines)


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_what_goes_over_is_a_patch_of_the_new_text(base: bytes, mine: bytes, theirs: bytes) -> None:
    own = Edit.between(base, mine)
    found = carry(own, theirs)
    assert found.edit.old == theirs
    assert len(found.blocks) + found.already + len(found.clashes) <= len(own.script)
    here = split_lines(theirs)
    for clash in found.clashes:
        assert here[clash.theirs_at :][: len(clash.theirs)] == clash.theirs
        assert clash.own != clash.base
    if found.edit.script:
        (diff,) = parse_diffs(render_diff(PATH, theirs, found.edit.new, found.edit.script))
        assert apply_diff(diff, theirs)[0] == found.edit.new
    # Where the strict rule for edits finds no conflict and nothing touches, both agree.
    strict = own.onto(Edit.between(base, theirs))
    if strict is not None and not found.clashes and not found.already:
        assert strict.new == found.edit.new


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS)
def test_the_same_text_and_the_finished_one(base: bytes, mine: bytes) -> None:
    own = Edit.between(base, mine)
    same = carry(own, base)
    assert (same.edit.new, list(same.edit.script)) == (mine, list(own.script))
    assert not same.clashes
    done = carry(own, mine)
    assert (done.edit.new, done.already) == (mine, len(own.script))
    assert not done.clashes


def test_lines_that_moved() -> None:
    own = Edit.between(BASE, _changed((5, b"mine\n"), (12, b"line 12\nmore\n")))
    theirs = b"new\n" * 9 + _changed((0, b""), (9, b"other\n"))
    found = carry(own, theirs)
    assert not found.clashes
    assert found.edit.new == b"new\n" * 9 + _changed(
        (0, b""), (5, b"mine\n"), (9, b"other\n"), (12, b"line 12\nmore\n")
    )


def test_lines_that_touch_clash_and_the_rest_goes_over() -> None:
    own = Edit.between(BASE, _changed((5, b"mine\n"), (15, b"also mine\n")))
    for theirs in (
        _changed((5, b"theirs\n")),
        _changed((6, b"theirs\n")),
        _changed((4, b"line 4\ntheirs\n")),
        _changed((4, b""), (5, b""), (6, b"")),
    ):
        found = carry(own, theirs)
        (clash,) = found.clashes
        assert b"line 5\n" in clash.base
        assert b"mine\n" in clash.own
        assert theirs.splitlines(True)[clash.theirs_at :][: len(clash.theirs)] == clash.theirs
        assert b"also mine\n" in found.edit.new
        assert b"\nmine\n" not in found.edit.new


def test_marks_show_all_three_texts() -> None:
    own = Edit.between(BASE, _changed((5, b"mine\n"), (15, b"also mine\n")))
    theirs = b"new\n" + _changed((5, b"theirs\n"))
    text = marked(theirs, carry(own, theirs), (b"new vLLM", b"old vLLM", b"core/a.patch"))
    marks = (
        b"<<<<<<< new vLLM\ntheirs\n||||||| old vLLM\nline 5\n=======\nmine\n>>>>>>> core/a.patch\n"
    )
    assert text == b"new\n" + _changed((5, marks), (15, b"also mine\n"))


def test_a_half_that_is_there_already() -> None:
    own = Edit.between(BASE, _changed((5, b"mine\n"), (15, b"also mine\n")))
    theirs = b"new\n" + _changed((5, b"mine\n"))
    found = carry(own, theirs)
    assert (found.already, len(found.blocks), found.clashes) == (1, 1, ())
    assert found.edit.new == b"new\n" + own.new


def test_two_changes_of_a_patch_in_one_change_of_theirs_are_one_clash() -> None:
    own = Edit.between(BASE, _changed((5, b"mine\n"), (7, b"more\n")))
    theirs = _changed((5, b""), (6, b""), (7, b"theirs\n"))
    (clash,) = carry(own, theirs).clashes
    assert clash.base == [b"line 5\n", b"line 6\n", b"line 7\n"]
    assert clash.own == [b"mine\n", b"line 6\n", b"more\n"]
    assert clash.theirs == [b"theirs\n"]
