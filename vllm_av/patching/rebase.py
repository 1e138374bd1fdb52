"""Move a change of a text past another one: so an edit of a patched tree reaches an early patch.

Rule: both changes together make the same text in either order. Changes of the same lines, or two
insertions at one place, are a conflict: nothing is guessed from what the lines look like.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_av.errors import Code, PatchError
from vllm_av.patching.script import Block, compare, split_lines
from vllm_av.patching.series import Step


@dataclass(frozen=True)
class Edit:
    """A change of one text, and the script that makes it."""

    old: bytes
    new: bytes
    script: Sequence[Block]

    @classmethod
    def between(cls, old: bytes, new: bytes) -> "Edit":
        """The change from one text to another."""
        return cls(old, new, compare(split_lines(old), split_lines(new)))

    def reversed(self) -> "Edit":
        """The change that takes this one back."""
        return Edit(self.new, self.old, [Block(j, n, i, m) for i, m, j, n in self.script])

    def onto(self, other: "Edit") -> "Edit | None":
        """The same change of ``other.new``; both start from one old text. None on a conflict."""
        lines, ours = split_lines(other.new), split_lines(self.new)
        new: list[bytes] = []
        script: list[Block] = []
        at = 0
        for i, m, j, n in self.script:
            if any(_clash(block, i, m) for block in other.script):
                return None
            i += sum(block.n - block.m for block in other.script if block.i + block.m <= i)
            new += lines[at:i]
            script.append(Block(i, m, len(new), n))
            new += ours[j : j + n]
            at = i + m
        new += lines[at:]
        if any(not line.endswith(b"\n") for line in new[:-1]):
            return None  # one of them took the newline from the last line, the other went on there
        return Edit(other.new, b"".join(new), script)


def _clash(block: Block, i: int, m: int) -> bool:
    """Do two blocks change the same lines, or insert at one place?"""
    if block.i == i and not (block.m or m):
        return True
    return block.i < i + m and i < block.i + block.m


Change = tuple[bytes | None, bytes | None]
"""A file before and after; None: there is none."""


def move(
    steps: list[Step], path: str, change: Change, at: int, to: int
) -> tuple[list[Step], Change]:
    """Move the edit of a file, made with ``steps[:at]`` applied, to right before ``steps[to]``.

    Returns:
        The steps as they are with the edit in its place, and the edit as it is there.

    Raises:
        PatchError: AV-PATCH-EXPORT, naming the patch that changes the same lines.
    """
    moved = list(steps)
    here = change
    for number in range(at - 1, to - 1, -1):
        if path in steps[number].after:
            here, moved[number] = _before(steps[number], path, here)
    there = change
    for number in range(at, to):
        if path in steps[number].after:
            there = _after(steps[number], path, there)[0]
    last = there
    for number in range(max(at, to), len(steps)):
        if path in steps[number].after:
            last, moved[number] = _after(steps[number], path, last)
    return moved, here if to < at else there


def _before(step: Step, path: str, change: Change) -> tuple[Change, Step]:
    """An edit made after the step, and the step, in the other order."""
    edit, own = _edits(step, path, change)
    back = own.reversed()
    here, past = edit.onto(back), back.onto(edit)
    if here is None or past is None:
        raise _conflict(step, path)
    return (here.old, here.new), _with(step, path, past.reversed())


def _after(step: Step, path: str, change: Change) -> tuple[Change, Step]:
    """An edit made before the step, as it looks after it, and the step on the edited file."""
    edit, own = _edits(step, path, change)
    there, past = edit.onto(own), own.onto(edit)
    if there is None or past is None:
        raise _conflict(step, path)
    return (there.old, there.new), _with(step, path, past)


def _edits(step: Step, path: str, change: Change) -> tuple[Edit, Edit]:
    old, new = step.before[path], step.after[path]
    if old is None or new is None or change[0] is None or change[1] is None:
        raise _conflict(step, path)
    return Edit.between(change[0], change[1]), Edit(old, new, step.scripts[path])


def _with(step: Step, path: str, own: Edit) -> Step:
    return Step(
        step.patch,
        step.before | {path: own.old},
        step.after | {path: own.new},
        {**step.scripts, path: list(own.script)},
    )


def _conflict(step: Step, path: str) -> PatchError:
    return PatchError(
        Code.PATCH_EXPORT,
        f"{path} was edited where {step.patch.name} changes it too",
        "an edit that moves past another patch changes other lines",
        "put it into that patch or into one after it (--patch, --new)",
    )
