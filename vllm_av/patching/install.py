"""Apply a series to an installed vLLM, and take it back.

Rule: all is computed in memory and checked before the first write. A file that is neither as the
wheel brought it nor as a series of ours left it is somebody's work: nothing is changed then.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from vllm_av.errors import Code, PatchError
from vllm_av.patching.edge import told
from vllm_av.patching.files import locked
from vllm_av.patching.goal import Goal, goal_of, pristine_bytecode, pristine_files
from vllm_av.patching.inuse import refuse_if_used
from vllm_av.patching.recovery import clean_up, discard_damaged, outlived, recover
from vllm_av.patching.series import Series
from vllm_av.patching.state import (
    ORIGINALS,
    Manifest,
    Snapshot,
    bytecode_of,
    content_sum,
    drifted,
    load_manifest,
    named,
    sum_of,
)
from vllm_av.patching.transaction import Plan, pending, run
from vllm_av.patching.tree import Tree, groups_for


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    done: str
    """``applied``, ``upgraded``, ``repaired``, ``already applied``, ``reverted``, or
    ``nothing to revert``."""
    patches: tuple[str, ...]
    files: tuple[str, ...]
    notes: tuple[str, ...]
    """What was found and mended on the way."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for ``--json``."""
        return asdict(self)


def select(series: Series, tree: Tree, groups: Sequence[str] = ()) -> Series:
    """The patches to apply: those of ``groups``, or of the groups that fit the distribution.

    Raises:
        PatchError: AV-PATCH-NO-SERIES, on a group without patches.
    """
    if not series.patches:
        raise PatchError(
            Code.PATCH_NO_SERIES,
            f"the series for {series.version} lists no patch",
            "at least one",
            "install vllm_av again",
        )
    wanted = groups or [group for group in series.groups if group in groups_for(*_id(tree))]
    unknown = set(wanted) - set(series.groups)
    if unknown or not wanted:
        raise PatchError(
            Code.PATCH_NO_SERIES,
            f"no patch of group {', '.join(sorted(unknown)) or 'core'} for {tree.dist} "
            f"{tree.version}",
            f"the series for {series.version} has: {', '.join(series.groups) or 'no patch'}",
            "choose with --group",
        )
    return series.only(wanted)


@told()
def apply(tree: Tree, series: Series, at: datetime | None = None) -> Outcome:
    """Bring the tree to the state of ``series``, from pristine or from another state of ours.

    Args:
        at: when that is; None: now. An image that shall be made again byte for byte names it.

    Raises:
        PatchError: AV-PATCH-CONFLICT, -NOT-PRISTINE, -DRIFT, -IN-USE, -BUSY, -WRITE, or -STATE;
            the tree is then as it was.
    """
    names = tuple(patch.name for patch in series.patches)
    with locked(tree.site):
        notes = _mend(tree, "apply")
        manifest = load_manifest(tree)
        goal = goal_of(tree, series, manifest, at)
        files = tuple(path for path in goal.wanted if path != tree.record_path)
        if manifest and manifest.digest == series.digest and goal.reached(tree):
            return Outcome("already applied", names, files, notes)
        _refuse_drift(tree, manifest, goal)
        plan = goal.plan(tree, manifest)
        if plan.after:  # else only the record of what is applied changes
            refuse_if_used(tree, "apply")
        run(tree, plan)
    done = "applied"
    if manifest:
        done = "repaired" if manifest.digest == series.digest else "upgraded"
    return Outcome(done, names, files, notes)


@told()
def revert(tree: Tree) -> Outcome:
    """Give every file back as the wheel brought it.

    Raises:
        PatchError: AV-PATCH-DRIFT, -IN-USE, -BUSY, -WRITE, or -STATE; the tree is then as it was.
    """
    with locked(tree.site):
        notes = _mend(tree, "revert")
        manifest = load_manifest(tree)
        if manifest is None:
            return Outcome("nothing to revert", (), (), notes)
        _refuse_drift(tree, manifest, None)
        refuse_if_used(tree, "revert")
        after: dict[str, Snapshot | None] = dict.fromkeys(bytecode_of(tree.site, manifest.sources))
        sources = pristine_files(tree, manifest, manifest.sources)
        after |= sources | pristine_bytecode(tree, manifest, sources)
        run(tree, Plan("revert", after, None, {}, dropped=manifest.folders))
    files = tuple(path for path in manifest.sources if path != tree.record_path)
    return Outcome("reverted", tuple(patch.name for patch in manifest.patches), files, notes)


def _id(tree: Tree) -> tuple[str, str]:
    return tree.dist, tree.version


def _mend(tree: Tree, verb: str) -> tuple[str, ...]:
    """End what a stopped command began; forget a record of a vLLM that is gone."""
    notes = []
    if note := discard_damaged(tree):
        notes.append(note)
    if pending(tree):
        refuse_if_used(tree, verb)
    if note := recover(tree):
        notes.append(note)
    manifest = load_manifest(tree)
    why = manifest and outlived(tree, manifest)
    if manifest and why:
        refuse_if_used(tree, verb)
        clean_up(tree, manifest.changes, manifest.folders)
        notes.append(f"removed an old record: {why}")
    return tuple(notes)


def to_undo_edits(tree: Tree) -> str:
    """What somebody does who edited a patched file."""
    return (
        "keep the edits with `vllm-av patch export --to DIR`, or drop them; then copy each file "
        f"from {tree.state}/{ORIGINALS} over the edited one"
    )


def _refuse_drift(tree: Tree, manifest: Manifest | None, goal: Goal | None) -> None:
    if manifest is None:
        return
    edited = [
        path
        for path in drifted(tree.site, manifest.sources)
        if goal is None
        or path not in goal.wanted
        or content_sum(tree.site / path) != sum_of(goal.wanted[path])
    ]
    if edited:
        raise PatchError(
            Code.PATCH_DRIFT,
            f"edited since the series was applied: {named(tree.site, edited)}",
            "only vllm_av changes the files that it patched",
            f"{to_undo_edits(tree)} and run `vllm-av patch {'apply' if goal else 'revert'}` again",
        )
