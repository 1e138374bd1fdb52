"""Carry a series over to another vLLM, in memory: what goes over, and what does not and why.

Each patch goes three ways (:mod:`vllm_av.patching.threeway`) from the files that it was made for
to the new ones with what went over before it. Rule: a patch goes over whole or not at all, and not
before what it requires; what the new vLLM has already is left out.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from vllm_av.errors import PatchError
from vllm_av.patching.diff import apply_diff, reverse_diff
from vllm_av.patching.mail import Patch
from vllm_av.patching.names import brought, used
from vllm_av.patching.offset import relocated
from vllm_av.patching.rebase import Edit
from vllm_av.patching.scopes import name_at, text_of
from vllm_av.patching.script import split_lines
from vllm_av.patching.series import Files, Step
from vllm_av.patching.threeway import Carried, carry, marked
from vllm_av.patching.verify import syntax_fault

Read = Callable[[str], bytes | None]


@dataclass(frozen=True)
class Place:
    """One place that stands in a patch's way. Lines are text, with their newlines."""

    file: str
    function: str
    """In which a patch changes lines; empty: in none."""
    why: str
    line: int | None = None
    """One-based, in the new vLLM's file with what went over."""
    old: str = ""
    """What the patch was made for."""
    new: str = ""
    """What is there now."""
    wanted: str = ""
    """What the patch makes of ``old``."""


@dataclass(frozen=True)
class Held:
    """A patch that did not go over."""

    patch: Patch
    places: tuple[Place, ...] = ()
    waits_for: tuple[str, ...] = ()
    """Held patches that it needs. It was not tried."""
    merged: Files = field(default_factory=dict)
    """Its files as far as they merge, with marks where they do not; over all that went over."""


@dataclass(frozen=True)
class Outcome:
    """What became of a series."""

    steps: tuple[Step, ...]
    """The patches that went over, on the new vLLM."""
    held: tuple[Held, ...]
    taken: tuple[str, ...]
    """Patches that the new vLLM has already."""
    looks: dict[str, list[Place]]
    """Places of patches that went over, and that somebody must look at."""
    notes: tuple[str, ...]
    files: Files
    """The touched files, with all that went over."""


def carry_series(
    steps: Sequence[Step], old: Read, new: Read, find: Callable[[str], Sequence[str]]
) -> Outcome:
    """Carry patches over, in their order.

    Args:
        steps: each patch where it applies.
        old: pristine files of the vLLM that the series is for.
        new: of the vLLM that it shall be for.
        find: new files that may be what became of one that is gone.
    """
    files: Files = {}
    done: list[Step] = []
    held: dict[str, Held] = {}
    brings: dict[str, set[str]] = {}
    taken: list[str] = []
    looks: dict[str, list[Place]] = {}
    notes: list[str] = []
    for step in steps:
        name = step.patch.name
        for diff in step.patch.diffs:
            files.setdefault(diff.path, new(diff.path))
        if waits := _waits(step, brings, files):
            held[name] = Held(step.patch, waits_for=waits)
        elif _is_there(step, files):
            taken.append(name)
            continue
        else:
            attempt = _attempt(step, files, find)
            if attempt.places:
                held[name] = Held(step.patch, tuple(attempt.places))
            elif all(attempt.after[path] == files[path] for path in attempt.after):
                taken.append(name)  # the lines around it differ, so that it is not found as it was
                continue
            else:
                notes += attempt.notes(name, old, new)
                if found := attempt.elsewhere():
                    looks[name] = found
                done.append(attempt.step(step))
                files |= done[-1].after
                continue
        brings[name] = brings_of(step)
    for name, one in held.items():
        if one.places:
            step = next(step for step in steps if step.patch.name == name)
            last = _attempt(step, files, find)
            held[name] = replace(
                one, places=tuple(last.places or one.places), merged=last.merged(name)
            )
    return Outcome(tuple(done), tuple(held.values()), tuple(taken), looks, tuple(notes), files)


def brings_of(step: Step) -> set[str]:
    """The names that others can use with a patch and could not without it."""
    return {
        name for path in step.after for name in brought(path, step.before[path], step.after[path])
    }


def _waits(step: Step, brings: dict[str, set[str]], files: Files) -> tuple[str, ...]:
    """The held patches that a patch names, or whose names it uses."""
    if not brings:
        return ()
    uses = {name for path in step.after for name in used(path, step.before[path], step.after[path])}
    there = {name for path in step.after for name in brought(path, None, files[path])}
    return tuple(
        name
        for name, words in brings.items()
        if name in step.patch.requires or words & uses - there - brings_of(step)
    )


def _is_there(step: Step, files: Files) -> bool:
    """Can the patch be taken back from files that it was never applied to?"""
    try:
        for diff in step.patch.diffs:
            back = reverse_diff(diff)
            apply_diff(relocated(back, files[diff.path]), files[diff.path])
    except PatchError:
        return False
    return True


@dataclass
class _Attempt:
    """One patch on files that it was not made for."""

    files: Files
    after: Files = field(default_factory=dict)
    carried: dict[str, Carried] = field(default_factory=dict)
    origin: Files = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)

    def step(self, step: Step) -> Step:
        """The patch where it applies now, without what is there already."""
        diffs = tuple(
            diff for diff in step.patch.diffs if self.after[diff.path] != self.files[diff.path]
        )
        moved = Step(
            replace(step.patch, diffs=diffs),
            {diff.path: self.files[diff.path] for diff in diffs},
            {diff.path: self.after[diff.path] for diff in diffs},
            {
                diff.path: (
                    list(self.carried[diff.path].edit.script)
                    if diff.path in self.carried
                    else step.scripts[diff.path]
                )
                for diff in diffs
            },
        )
        return replace(moved, patch=moved.render())

    def merged(self, name: str) -> Files:
        """The files with marks."""
        marks = (b"the new vLLM, and what went over", b"the old vLLM", name.encode())
        return {
            path: marked(self.files[path] or b"", self.carried[path], marks)
            if path in self.carried
            else self.after[path]
            for path in {*self.carried, *self.after}
        }

    def elsewhere(self) -> list[Place]:
        """Where lines went into a function of another name."""
        found: dict[tuple[str, str], Place] = {}
        for path, carried in self.carried.items():
            before, theirs = self.origin[path], self.files[path]
            if before == theirs:
                continue
            for block, placed in carried.blocks:
                was = [name_at(before, line) for line in (block.i - 1, block.i)]
                now = [name_at(theirs, line) for line in (placed.i - 1, placed.i)]
                if was[0] != now[0] and was[1] != now[1]:
                    old_name, new_name = (name or "the module" for name in (was[1], now[1]))
                    why = f"the patch's lines were in {old_name} and are in {new_name} now"
                    place = Place(path, now[1], why, line=placed.i + 1)
                    found.setdefault((path, now[1]), place)
        return list(found.values())

    def notes(self, name: str, old: Read, new: Read) -> list[str]:
        """The functions that the patch changes and the new vLLM has changed too."""
        found = []
        for path, carried in self.carried.items():
            if old(path) == new(path):
                continue
            inside = {name_at(self.files[path], placed.i) for _, placed in carried.blocks}
            changed = [
                one
                for one in sorted(inside)
                if (was := text_of(old(path), one)) and (now := text_of(new(path), one))
                if was != now
            ]
            if changed:
                found.append(f"{name}: {path}: changed around it: {', '.join(changed)}")
        return found


def _attempt(step: Step, files: Files, find: Callable[[str], Sequence[str]]) -> _Attempt:
    found = _Attempt(files)
    for path in sorted(step.after):
        before, after, theirs = step.before[path], step.after[path], files[path]
        found.origin[path] = before
        if before == theirs or after == theirs:
            found.after[path] = after
            if before is not None and after is not None and theirs is not None:
                found.carried[path] = carry(Edit(before, after, step.scripts[path]), theirs)
        elif theirs is None:
            found.places.append(_gone(path, find(path)))
        elif before is None or after is None:
            found.places.append(_other_file(path, before, theirs))
        else:
            carried = carry(Edit(before, after, step.scripts[path]), theirs)
            found.carried[path] = carried
            found.after[path] = carried.edit.new
            found.places += _clashes(path, carried, before, theirs)
    if not found.places:
        for path, content in found.after.items():
            if content is not None and (fault := syntax_fault(path, content)):
                found.places.append(Place(path, "", f"the result does not compile: {fault}"))
    return found


def _gone(path: str, perhaps: Collection[str]) -> Place:
    hint = f"; perhaps it is now {' or '.join(perhaps)}" if perhaps else ""
    return Place(path, "", f"the file has gone{hint}")


def _other_file(path: str, before: bytes | None, theirs: bytes) -> Place:
    why = (
        "the patch brings a file that is there already, with other lines"
        if before is None
        else "the patch removes a file whose lines have changed"
    )
    return Place(path, "", why, 1, new=_text(split_lines(theirs)))


def _clashes(path: str, carried: Carried, before: bytes, theirs: bytes) -> list[Place]:
    return [
        Place(
            path,
            name_at(theirs, clash.theirs_at) or name_at(before, clash.base_at),
            "both change these lines",
            clash.theirs_at + 1,
            _text(clash.base),
            _text(clash.theirs),
            _text(clash.own),
        )
        for clash in carried.clashes
    ]


def _text(lines: Sequence[bytes]) -> str:
    return b"".join(lines).decode(errors="replace")
