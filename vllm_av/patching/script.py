"""Edit scripts between two texts, and hunks in git's format.

A script is a list of :class:`Block`: replace ``old[i:i+m]`` by ``new[j:j+n]`` (lines, zero-based).
Rule: the text of the hunks is a pure function of (old, new, script), so a patch whose line
numbers, context, or section names are stale never renders back to itself.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

CONTEXT = 3
SECTION_BYTES = 80
NO_NEWLINE = b"\\ No newline at end of file\n"


class Block(NamedTuple):
    """Lines ``old[i:i+m]`` become ``new[j:j+n]``."""

    i: int
    m: int
    j: int
    n: int


def split_lines(text: bytes) -> list[bytes]:
    """Lines with their ``\\n``; a carriage return is part of its line, as in git."""
    lines = text.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def compare(old: Sequence[bytes], new: Sequence[bytes]) -> list[Block]:
    """A script from ``old`` to ``new``, cut where the standard library cuts."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        Block(i, i_end - i, j, j_end - j)
        for tag, i, i_end, j, j_end in matcher.get_opcodes()
        if tag != "equal"
    ]


def hunks(old: Sequence[bytes], new: Sequence[bytes], script: Sequence[Block]) -> bytes:
    """The text of all hunks, three lines of context, in the format of ``git diff``."""
    return b"".join(_hunk(old, new, group) for group in _groups(script))


def _groups(script: Iterable[Block]) -> Iterator[list[Block]]:
    group: list[Block] = []
    for block in script:
        if group and block.i - group[-1].i - group[-1].m > 2 * CONTEXT:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _hunk(old: Sequence[bytes], new: Sequence[bytes], group: Sequence[Block]) -> bytes:
    first, last = group[0], group[-1]
    i = max(first.i - CONTEXT, 0)
    i_end = min(last.i + last.m + CONTEXT, len(old))
    j = first.j - (first.i - i)
    j_end = last.j + last.n + (i_end - last.i - last.m)
    parts = [
        b"@@ -%s +%s @@%s\n" % (_range(i, i_end), _range(j, j_end), _section(old, i)),
    ]
    at = i
    for block in group:
        parts += [_line(b" ", line) for line in old[at : block.i]]
        parts += [_line(b"-", line) for line in old[block.i : block.i + block.m]]
        parts += [_line(b"+", line) for line in new[block.j : block.j + block.n]]
        at = block.i + block.m
    parts += [_line(b" ", line) for line in old[at:i_end]]
    return b"".join(parts)


def _range(start: int, end: int) -> bytes:
    size = end - start
    if size == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if size else start, size)


def _section(old: Sequence[bytes], start: int) -> bytes:
    """The nearest line above that starts with a letter, ``_`` or ``$``: git's default rule."""
    for index in range(start - 1, -1, -1):
        head = old[index][:1]
        if (head.isalpha() and head.isascii()) or head in (b"_", b"$"):
            return b" " + old[index].rstrip(b"\n")[:SECTION_BYTES].rstrip()
    return b""


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + b"\n" + NO_NEWLINE


def tidy(old: bytes, new: bytes, script: Sequence[Block]) -> list[Block]:
    """The same script without lines that a block takes out and puts back at once."""
    old_lines, new_lines = split_lines(old), split_lines(new)
    tidied: list[Block] = []
    for i, m, j, n in script:
        while m and n and old_lines[i] == new_lines[j]:
            i, m, j, n = i + 1, m - 1, j + 1, n - 1
        while m and n and old_lines[i + m - 1] == new_lines[j + n - 1]:
            m, n = m - 1, n - 1
        if m or n:
            tidied.append(Block(i, m, j, n))
    return tidied
