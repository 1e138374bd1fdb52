"""Put the edits of a patched tree into the patches of a series, in memory.

Rule: an edit may be put into any patch, old or new, as long as the patches between there and the
tree change other lines; those are written again with their line numbers and object ids set right,
and every patch that nothing touches keeps its text byte for byte.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from vllm_av.errors import Code, PatchError
from vllm_av.patching.diff import REGULAR, malformed, render_diff
from vllm_av.patching.mail import Patch, compose, compose_head, faults
from vllm_av.patching.rebase import Change, move
from vllm_av.patching.script import compare, split_lines
from vllm_av.patching.series import Files, Step, refuse_bad_name
from vllm_av.patching.tree import GROUPS, Source


@dataclass(frozen=True)
class Edits:
    """What somebody changed in a tree that has ``steps[:at]`` of a series applied."""

    steps: tuple[Step, ...]
    """The whole series on pristine files."""
    at: int
    found: Files
    """The edited files."""
    source: Source
    """Pristine files."""

    def change(self, path: str) -> Change:
        """An edited file as the applied patches make it, and as it was found.

        Raises:
            PatchError: AV-PATCH-NOT-PRISTINE, where no patch has it and the source cannot tell.
        """
        made = [step.after[path] for step in self.steps[: self.at] if path in step.after]
        return made[-1] if made else self.source.read(path), self.found[path]


def fold(edits: Edits, into: str | None = None) -> list[Patch]:
    """Every patch again, each edit in ``into`` or in the last applied patch that has the file.

    Raises:
        PatchError: AV-PATCH-EXPORT, where no patch touches an edited file, where one between
            changes the same lines, or where a patch would be left without a change;
            AV-PATCH-NO-SERIES on an unknown one.
    """
    names = [step.patch.name for step in edits.steps[: edits.at]]
    if into is not None and into not in names:
        raise PatchError(
            Code.PATCH_NO_SERIES,
            f"no patch {into}",
            f"applied are: {', '.join(names)}",
            "name one of them, or make a new one with --new",
        )
    steps = list(edits.steps)
    homes: dict[int, dict[str, Change]] = {}
    for path in edits.found:
        owners = [number for number in range(edits.at) if path in steps[number].after]
        if into is None and not owners:
            raise PatchError(
                Code.PATCH_EXPORT,
                f"{path} was edited, and no patch changes it",
                "an edit goes by itself only into the last patch that changes its file",
                "name a patch with --patch, or make a new one with --new",
            )
        home = names.index(into) if into else owners[-1]
        steps, moved = move(steps, path, edits.change(path), edits.at, home + 1)
        homes.setdefault(home, {})[path] = moved
    return [_refold(step, homes.get(number, {})) for number, step in enumerate(steps)]


def _refold(step: Step, changes: Mapping[str, Change]) -> Patch:
    if not changes:
        return step.render()
    kept = {diff.path: text for diff, text in step.parts() if diff.path not in changes}
    for path, (before, new) in changes.items():
        old = step.before.get(path, before)
        if new != old:
            kept[path] = render_change(path, old, new)
    if not kept:
        raise PatchError(
            Code.PATCH_EXPORT,
            f"{step.patch.name} would be left without a change",
            "a patch changes at least one file",
            "take it out of the series and remove its file",
        )
    return compose(step.patch.name, step.patch.head, [kept[path] for path in sorted(kept)])


def insert(edits: Edits, name: str, message: str, date: datetime) -> list[Patch]:
    """Every patch again, and a new one with all the edits after the last of its group.

    Args:
        message: see :func:`vllm_av.patching.mail.compose_head`.

    Raises:
        PatchError: AV-PATCH-EXPORT, where nothing was edited or a later patch changes the same
            lines; AV-PATCH-SERIES, on a bad name or message.
    """
    refuse_bad_name(name)
    names = [step.patch.name for step in edits.steps]
    if name in names:
        raise malformed(f"the series has a patch {name} already")
    place = place_of(name, names)
    steps = list(edits.steps)
    before: Files = {}
    after: Files = {}
    for path in edits.found:
        steps, (before[path], after[path]) = move(steps, path, edits.change(path), edits.at, place)
    patches = [step.render() for step in steps]
    patches.insert(place, new_patch(name, message, before, after, date))
    return patches


def place_of(name: str, names: Sequence[str]) -> int:
    """Where a new patch goes: after the last one of its group, or of a group that comes first."""
    groups = GROUPS[: GROUPS.index(name.partition("/")[0]) + 1]
    earlier = [at for at, other in enumerate(names) if other.partition("/")[0] in groups]
    return earlier[-1] + 1 if earlier else 0


def new_patch(name: str, message: str, before: Files, after: Files, date: datetime) -> Patch:
    """A patch that turns ``before`` into ``after``.

    Args:
        message: see :func:`vllm_av.patching.mail.compose_head`.

    Raises:
        PatchError: AV-PATCH-EXPORT, where nothing differs; AV-PATCH-SERIES, on a bad message.
    """
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    if not changed:
        raise PatchError(
            Code.PATCH_EXPORT,
            f"nothing was edited, so {name} would be empty",
            "a patch changes at least one file",
            "edit the tree first",
        )
    parts = [render_change(path, before.get(path), after.get(path)) for path in changed]
    patch = compose(name, compose_head(message, date), parts)
    if found := faults(patch):
        raise malformed(f"{name}: {'; '.join(found)}")
    return patch


def render_change(path: str, old: bytes | None, new: bytes | None) -> bytes:
    """The change of one file from scratch."""
    script = compare(split_lines(old or b""), split_lines(new or b""))
    old_mode = None if old is None else REGULAR
    new_mode = None if new is None else REGULAR
    return render_diff(path, old, new, script, old_mode, new_mode)
