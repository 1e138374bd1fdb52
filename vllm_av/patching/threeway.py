"""Carry one patch's change of a file to another text of that file: three ways, nothing guessed.

    base     the file that the patch was made for
    own      what the patch makes of it
    theirs   the file as it is now

Rule: a block of the patch goes where its lines went. It is taken as it is where the lines around it
stayed together; where they changed, or the same lines changed, it is a clash and told. A block that
``theirs`` has already is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vllm_av.patching.rebase import Edit
from vllm_av.patching.script import Block, split_lines

MARKS = (b"<<<<<<< %s\n", b"||||||| %s\n", b"=======\n", b">>>>>>> %s\n")
"""git's, in the style that shows all three texts."""


@dataclass(frozen=True)
class Clash:
    """Lines that both changed. The three pieces are lines of base, own and theirs."""

    base_at: int
    """Zero-based line of ``base``."""
    base: list[bytes]
    own: list[bytes]
    theirs_at: int
    theirs: list[bytes]


@dataclass(frozen=True)
class Carried:
    """What came of it. ``edit`` starts from ``theirs`` and holds the blocks that went over."""

    edit: Edit
    clashes: tuple[Clash, ...]
    already: int
    """Blocks that ``theirs`` has."""
    blocks: tuple[tuple[Block, Block], ...]
    """Each block that went over: in base, and in theirs."""


def carry(own: Edit, theirs: bytes) -> Carried:
    """Carry ``own`` over to ``theirs``."""
    move = Edit.between(own.old, theirs) if own.old != theirs else Edit(theirs, theirs, ())
    ours, here = split_lines(own.new), split_lines(theirs)
    base = split_lines(own.old)
    new: list[bytes] = []
    script: list[Block] = []
    blocks: list[tuple[Block, Block]] = []
    clashes: list[Clash] = []
    at = already = 0
    for group in _groups(own.script, move.script):
        if len(group) == 1 and not _touching(group[0], move.script):
            block = group[0]
            i = _moved(block.i, move.script)
            new += here[at:i]
            placed = Block(i, block.m, len(new), block.n)
            script.append(placed)
            blocks.append((block, placed))
            new += ours[block.j : block.j + block.n]
            at = i + block.m
            continue
        clash = _clash(group, own, move, base, ours, here)
        if clash.theirs == clash.own:
            already += 1
        else:
            clashes.append(clash)
    new += here[at:]
    edit = Edit(theirs, b"".join(new), script)
    return Carried(edit, tuple(clashes), already, tuple(blocks))


def marked(theirs: bytes, found: Carried, names: tuple[bytes, bytes, bytes]) -> bytes:
    """``theirs`` with what went over, and each clash between git's marks.

    Args:
        names: of theirs, base and own.
    """
    here, new = split_lines(theirs), split_lines(found.edit.new)
    pieces = [(b.i, b.m, new[b.j : b.j + b.n]) for b in found.edit.script]
    for clash in found.clashes:
        text = [MARKS[0] % names[0], *_ended(clash.theirs), MARKS[1] % names[1]]
        text += [*_ended(clash.base), MARKS[2], *_ended(clash.own), MARKS[3] % names[2]]
        pieces.append((clash.theirs_at, len(clash.theirs), text))
    out: list[bytes] = []
    at = 0
    for i, m, lines in sorted(pieces, key=lambda piece: piece[0]):
        out += [*here[at:i], *lines]
        at = i + m
    return b"".join([*out, *here[at:]])


def _ended(lines: Sequence[bytes]) -> list[bytes]:
    return [line if line.endswith(b"\n") else line + b"\n" for line in lines]


def _groups(own: Sequence[Block], move: Sequence[Block]) -> Iterator[list[Block]]:
    """The patch's blocks; those that touch one and the same change of theirs stay together."""
    group: list[Block] = []
    for block in own:
        if group:
            touched = _touching(group[-1], move)
            if not touched or touched[-1] not in _touching(block, move):
                yield group
                group = []
        group.append(block)
    if group:
        yield group


def _touching(block: Block, move: Sequence[Block]) -> list[Block]:
    """The changes of theirs that leave no line that stayed between them and the block."""
    return [
        other for other in move if other.i <= block.i + block.m and block.i <= other.i + other.m
    ]


def _moved(i: int, move: Sequence[Block]) -> int:
    """Where a line of base that stayed is in theirs."""
    return i + sum(other.n - other.m for other in move if other.i + other.m <= i)


def _clash(
    group: Sequence[Block],
    own: Edit,
    move: Edit,
    base: Sequence[bytes],
    ours: Sequence[bytes],
    here: Sequence[bytes],
) -> Clash:
    others = [other for block in group for other in _touching(block, move.script)]
    first = min(block.i for block in [*group, *others])
    end = max(block.i + block.m for block in [*group, *others])
    return Clash(
        first,
        list(base[first:end]),
        list(ours[_place(first, own.script, 0) : _place(end, own.script, 1)]),
        _place(first, move.script, 0),
        list(here[_place(first, move.script, 0) : _place(end, move.script, 1)]),
    )


def _place(i: int, script: Sequence[Block], after: int) -> int:
    """Where the boundary before line ``i`` lies behind a script, whose blocks do not cross it.

    Args:
        after: 1: behind what is inserted or changed right there; 0: before it.
    """
    return i + sum(
        block.n - block.m
        for block in script
        if block.i + block.m < i or (block.i + block.m == i and (block.m or after))
    )
