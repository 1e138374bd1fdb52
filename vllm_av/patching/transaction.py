"""All or nothing: many files of a tree change together, whatever happens in between.

Before the first file is touched, ``transaction/`` holds the bytes of every file before and after,
and a journal that is renamed into place. From then on the change is decided:

    journal.json    go forward: each ``after/<n>`` still there is renamed over its file
    undo.json       go back (a rename failed): each ``before/<n>`` likewise

Rule: where we are is told by which of these files remain, never by a counter; so each step may
be cut short and taken again. Neither direction needs room on the disk.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from vllm_av.patching.files import (
    make_folder,
    not_written,
    remove,
    remove_folder,
    replace_file,
    same_owner,
    sync,
    write_file,
)
from vllm_av.patching.state import (
    MANIFEST,
    ORIGINALS,
    Change,
    FileState,
    Manifest,
    PathBelow,
    Snapshot,
    bytecode_of,
    damaged,
    read_record,
    snapshot,
)
from vllm_av.patching.tree import Tree

FOLDER = "transaction"
FORWARD, BACK = "journal.json", "undo.json"

Side = Literal["before", "after"]


class Journal(BaseModel):
    """What a transaction does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verb: str
    dist: str
    version: str
    changes: tuple[Change, ...]
    """Sources first, bytecode last: bytecode that Python writes meanwhile is overwritten."""
    made: tuple[PathBelow, ...]
    """Folders to make, deepest last."""
    dropped: tuple[PathBelow, ...]
    """Folders to remove if they are empty, deepest last."""
    applies: bool
    """True: a manifest is put in place at the end. False: it is removed."""


@dataclass(frozen=True)
class Plan:
    """A transaction to run: for each path what shall be there."""

    verb: str
    after: Mapping[str, Snapshot | None]
    manifest: Manifest | None
    originals: Mapping[str, bytes]
    made: Sequence[str] = ()
    dropped: Sequence[str] = ()


def run(tree: Tree, plan: Plan) -> None:
    """Carry out a plan. The caller holds the lock and has recovered before.

    Raises:
        PatchError: AV-PATCH-WRITE; the tree is then as it was.
    """
    work = tree.state / FOLDER
    try:
        _prepare(tree, plan, work)
    except OSError as error:
        with suppress(OSError):
            clear(tree)  # what stays, the next command ends or removes
        raise not_written(tree.site, error, left="nothing was changed") from error
    journal = _read(tree, FORWARD)
    assert journal is not None
    with ending(tree, journal):
        try:
            forward(tree, journal)
        except OSError as error:
            os.replace(work / FORWARD, work / BACK)
            back(tree, journal)
            finish(tree, BACK)
            raise not_written(tree.site, error, left="every file was put back") from error
        commit(tree, journal)


@contextmanager
def ending(tree: Tree, journal: Journal) -> Iterator[None]:
    """Say so, where not even the end of a transaction can be written."""
    try:
        yield
    except OSError as error:
        left = f"the {journal.verb} is half done; the same command ends it"
        raise not_written(tree.site, error, left=left) from error


def pending(tree: Tree) -> tuple[Journal, Literal["forward", "back"]] | None:
    """The transaction that was cut short, and where it would go on."""
    if journal := _read(tree, FORWARD):
        return journal, "forward"
    if journal := _read(tree, BACK):
        return journal, "back"
    return None


def _prepare(tree: Tree, plan: Plan, work: Path) -> None:
    make_folder(work)
    for name in ("before", "after"):
        os.mkdir(work / name)
    changes: list[Change] = []
    for path in sorted(plan.after, key=lambda path: (path.endswith(".pyc"), path)):
        old, new = snapshot(tree.site / path), plan.after[path]
        number = len(changes)
        if old is not None:
            _stage(tree, path, work / "before" / str(number), old)
        if new is not None:
            _stage(tree, path, work / "after" / str(number), new)
        before, after = (file.state if file else None for file in (old, new))
        changes.append(Change(path=path, before=before, after=after))
    for path, content in plan.originals.items():
        target = work / ORIGINALS / path
        make_folder(target.parent)
        write_file(target, content)
    if plan.manifest is not None:
        write_file(work / MANIFEST, plan.manifest.model_dump_json(indent=1).encode())
    for folder, _, _ in os.walk(work, topdown=False):
        sync(Path(folder))
    journal = Journal(
        verb=plan.verb,
        dist=tree.dist,
        version=tree.version,
        changes=tuple(changes),
        made=tuple(plan.made),
        dropped=tuple(plan.dropped),
        applies=plan.manifest is not None,
    )
    sync(tree.state)
    sync(tree.site)
    replace_file(work / FORWARD, journal.model_dump_json(indent=1).encode())


def _stage(tree: Tree, path: str, staged: Path, file: Snapshot) -> None:
    if file.state.link is not None:
        os.symlink(file.state.link, staged)
        return
    write_file(staged, file.content, file.state.mode, file.state.mtime_ns)
    target = tree.site / path
    model = target if target.exists() else tree.site / tree.record_path
    same_owner(staged, model)


def _read(tree: Tree, name: str) -> Journal | None:
    text = read_record(tree, f"{FOLDER}/{name}")
    if text is None:
        return None
    try:
        return Journal.model_validate_json(text)
    except ValidationError:
        raise damaged(tree, f"{FOLDER}/{name} cannot be read") from None


def forward(tree: Tree, journal: Journal) -> None:
    """Put every file in place that is not yet."""
    for folder in journal.made:
        make_folder(tree.site / folder)
    _place(tree, journal, "after")
    _drop_folders(tree, journal.dropped)


def back(tree: Tree, journal: Journal) -> None:
    """Put every file back that had been replaced."""
    for folder in journal.dropped:
        make_folder(tree.site / folder)
    _place(tree, journal, "before")
    _drop_folders(tree, journal.made)


def _place(tree: Tree, journal: Journal, side: Side) -> None:
    work = tree.state / FOLDER
    kept = {change.path for change in journal.changes if state_at(change, side) is not None}
    folders = set()
    for number, change in enumerate(journal.changes):
        target = tree.site / change.path
        staged = work / side / str(number)
        if side == "before" and is_at(tree, change, "before"):
            continue  # never placed; a rename here might fail like the one that sent us back
        if change.path not in kept:
            remove(target)
        elif os.path.lexists(staged):
            make_folder(target.parent)
            os.replace(staged, target)
        folders.add(target.parent)
    # Bytecode of a touched module that none of the snapshots knows was made from other bytes.
    sources = [change.path for change in journal.changes if not change.is_bytecode]
    for path in bytecode_of(tree.site, sources):
        if path not in kept:
            remove(tree.site / path)
    for folder in sorted(folders):
        if folder.is_dir():
            sync(folder)


def _drop_folders(tree: Tree, folders: Sequence[str]) -> None:
    for folder in reversed(folders):
        for path in (tree.site / folder / "__pycache__", tree.site / folder):
            if path.is_dir() and not any(path.iterdir()):
                os.rmdir(path)


def commit(tree: Tree, journal: Journal) -> None:
    """All files are in place: record it, and end the transaction."""
    work, stored = tree.state / FOLDER, tree.state / ORIGINALS
    if journal.applies:
        if (work / ORIGINALS).exists():
            remove_folder(stored)
            os.replace(work / ORIGINALS, stored)
        if (work / MANIFEST).exists():
            os.replace(work / MANIFEST, tree.state / MANIFEST)
    else:
        remove(tree.state / MANIFEST)
    sync(tree.state)
    finish(tree, FORWARD)


def finish(tree: Tree, name: str) -> None:
    """End the transaction whose journal is ``name``."""
    remove(tree.state / FOLDER / name)
    sync(tree.state / FOLDER)
    clear(tree)


def clear(tree: Tree) -> None:
    """Remove what is not needed any more, the journals first: without one, the rest is waste."""
    for name in (FORWARD, BACK):
        remove(tree.state / FOLDER / name)
    remove_folder(tree.state / FOLDER)
    if not (tree.state / MANIFEST).exists():
        remove_folder(tree.state)


def state_at(change: Change, side: Side) -> FileState | None:
    """One side of a change."""
    return change.before if side == "before" else change.after


def is_at(tree: Tree, change: Change, side: Side) -> bool:
    """Does a file have the bytes that it had before, or shall have after?"""
    state = state_at(change, side)
    found = snapshot(tree.site / change.path)
    return (found and found.state.sha256) == (state and state.sha256)
