"""Where git cuts: a run of changed lines may often slide up or down without changing the result.

An insertion between equal lines reads well in one place only: before a function, not from the
middle of one to the middle of the next. Rule: the choice is git's own (``xdl_change_compact`` with
its indent heuristic), weights included, so that git writes our patches as we do.
"""

from collections.abc import Sequence
from typing import NamedTuple

MAX_INDENT = 200
MAX_BLANKS = 20
MAX_SLIDING = 100

# git's weights, found by its authors by optimisation over a corpus of diffs.
_START_OF_FILE, _END_OF_FILE = 1, 21
_TOTAL_BLANK, _POST_BLANK = -30, 6
_INDENT, _INDENT_WITH_BLANK = -4, 10
_OUTDENT, _OUTDENT_WITH_BLANK = 24, 17
_DEDENT, _DEDENT_WITH_BLANK = 23, 17
_INDENT_WEIGHT = 60


class _Group(NamedTuple):
    """A run of changed lines; empty: the gap between two unchanged ones."""

    start: int
    end: int


def slide(lines: Sequence[bytes], changed: list[bool], other: list[bool]) -> None:
    """Move the changed runs of one text to where git puts them, in place.

    Args:
        lines: the text.
        changed: for each of its lines whether it is changed.
        other: the same for the other text; its runs are not moved.
    """
    at, beside = _first(changed), _first(other)
    while True:
        if at.end > at.start:
            at, beside = _slide_one(lines, changed, other, at, beside)
        if at.end == len(changed):
            return
        at, beside = _next(changed, at), _next(other, beside)


def _slide_one(
    lines: Sequence[bytes], changed: list[bool], other: list[bool], at: _Group, beside: _Group
) -> tuple[_Group, _Group]:
    while True:
        size = at.end - at.start
        matching = -1
        while (up := _up(lines, changed, at)) is not None:
            at, beside = up, _previous(other, beside)
        earliest = at.end
        if beside.end > beside.start:
            matching = at.end
        while (down := _down(lines, changed, at)) is not None:
            at, beside = down, _next(other, beside)
            if beside.end > beside.start:
                matching = at.end
        if size == at.end - at.start:  # else it met another run, and both slide on as one
            break
    if at.end == earliest:
        return at, beside
    if matching != -1:
        best = matching
    else:
        first = max(earliest, at.end - size - 1, at.end - MAX_SLIDING)
        best = first
        for end in range(first, at.end + 1):
            if _compare(_score(lines, end, size), _score(lines, best, size)) <= 0:
                best = end
    while at.end > best:
        up = _up(lines, changed, at)
        assert up is not None
        at, beside = up, _previous(other, beside)
    return at, beside


def _first(changed: list[bool]) -> _Group:
    return _Group(0, _end(changed, 0))


def _next(changed: list[bool], at: _Group) -> _Group:
    return _Group(at.end + 1, _end(changed, at.end + 1))


def _previous(changed: list[bool], at: _Group) -> _Group:
    start = end = at.start - 1
    while start > 0 and changed[start - 1]:
        start -= 1
    return _Group(start, end)


def _end(changed: list[bool], start: int) -> int:
    while start < len(changed) and changed[start]:
        start += 1
    return start


def _up(lines: Sequence[bytes], changed: list[bool], at: _Group) -> _Group | None:
    if at.start == 0 or lines[at.start - 1] != lines[at.end - 1]:
        return None
    start, end = at.start - 1, at.end - 1
    changed[start], changed[end] = True, False
    while start > 0 and changed[start - 1]:
        start -= 1
    return _Group(start, end)


def _down(lines: Sequence[bytes], changed: list[bool], at: _Group) -> _Group | None:
    if at.end == len(lines) or lines[at.start] != lines[at.end]:
        return None
    changed[at.start], changed[at.end] = False, True
    return _Group(at.start + 1, _end(changed, at.end + 1))


def _score(lines: Sequence[bytes], end: int, size: int) -> tuple[int, int]:
    """(effective indent, penalty) of a run that ends at ``end``: of both its cuts."""
    after, before = _cut(lines, end), _cut(lines, end - size)
    return after[0] + before[0], after[1] + before[1]


def _compare(one: tuple[int, int], two: tuple[int, int]) -> int:
    indents = (one[0] > two[0]) - (one[0] < two[0])
    return _INDENT_WEIGHT * indents + one[1] - two[1]


def _cut(lines: Sequence[bytes], at: int) -> tuple[int, int]:
    own = _indent(lines[at]) if at < len(lines) else -1
    pre, pre_blank = _neighbour(lines, range(at - 1, -1, -1))
    post, post_blank = _neighbour(lines, range(at + 1, len(lines)))
    penalty = 0
    if pre == -1 and not pre_blank:
        penalty += _START_OF_FILE
    if at >= len(lines):
        penalty += _END_OF_FILE
    post_blank = 1 + post_blank if own == -1 else 0
    blanks = pre_blank + post_blank
    penalty += _TOTAL_BLANK * blanks + _POST_BLANK * post_blank
    indent = own if own != -1 else post
    if -1 in (indent, pre) or indent == pre:
        return indent, penalty
    if indent > pre:
        penalty += _INDENT_WITH_BLANK if blanks else _INDENT
    elif post > indent:
        penalty += _OUTDENT_WITH_BLANK if blanks else _OUTDENT
    else:
        penalty += _DEDENT_WITH_BLANK if blanks else _DEDENT
    return indent, penalty


def _neighbour(lines: Sequence[bytes], order: range) -> tuple[int, int]:
    """Indent of the nearest line that is not blank (-1: none), and the blank ones before it."""
    blanks = 0
    for index in order:
        indent = _indent(lines[index])
        if indent != -1:
            return indent, blanks
        blanks += 1
        if blanks == MAX_BLANKS:
            return 0, blanks
    return -1, blanks


def _indent(line: bytes) -> int:
    """Columns before the first letter; -1 for a blank line."""
    indent = 0
    for byte in line:
        if byte == 32:
            indent += 1
        elif byte == 9:
            indent += 8 - indent % 8
        elif byte not in b"\n\r\f\v":
            return indent
        if indent >= MAX_INDENT:
            return MAX_INDENT
    return -1
