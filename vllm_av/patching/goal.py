"""What a tree shall look like with a series applied: computed in memory, nothing written.

Rule: every pristine byte comes from the store of originals or is proved by RECORD.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from vllm_av import __version__
from vllm_av.errors import Code, PatchError
from vllm_av.patching.diff import apply_diff, reverse_diff
from vllm_av.patching.series import Files, Series, apply_patch
from vllm_av.patching.state import (
    MANIFEST,
    ORIGINALS,
    Change,
    FileState,
    Manifest,
    PatchId,
    Snapshot,
    bytecode_of,
    content_sum,
    named,
    original,
    snapshot,
    source_of,
    sum_of,
)
from vllm_av.patching.transaction import Plan
from vllm_av.patching.tree import Tree, digest, record_line


@dataclass(frozen=True)
class Goal:
    """The files of all paths that a series changes, RECORD among them, as they shall be."""

    series: Series
    pristine: dict[str, Snapshot | None]
    bytecode: dict[str, Snapshot | None]
    """Of pristine files: a revert gives it back."""
    wanted: dict[str, Snapshot | None]
    at: datetime
    """When: it is written down, and the files that are patched bear it."""

    def reached(self, tree: Tree) -> bool:
        """Is every file as it shall be?"""
        return all(
            content_sum(tree.site / path) == sum_of(self.wanted[path]) for path in self.wanted
        )

    def plan(self, tree: Tree, manifest: Manifest | None) -> Plan:
        """The transaction from the tree as it is, with ``manifest`` applied, to this goal."""
        dropped = [path for path in manifest.sources if path not in self.wanted] if manifest else []
        stored = self.pristine | self.bytecode
        given_back = pristine_files(tree, manifest, dropped)
        end: dict[str, Snapshot | None] = {}
        end |= dict.fromkeys(bytecode_of(tree.site, [*self.wanted, *dropped]))
        end |= given_back | pristine_bytecode(tree, manifest, given_back)
        end |= self.wanted
        folders = {
            folder.as_posix()
            for path, file in self.wanted.items()
            if file
            for folder in PurePosixPath(path).parents
        }
        old = set(manifest.folders) if manifest else set()
        made = {folder for folder in folders if not (tree.site / folder).is_dir()}
        return Plan(
            verb="apply",
            after={p: f for p, f in end.items() if content_sum(tree.site / p) != sum_of(f)},
            manifest=self._manifest(tree, stored, end, sorted(made | old & folders)),
            originals={path: file.content for path, file in stored.items() if file},
            made=sorted(made),
            dropped=sorted(old - folders),
        )

    def _manifest(
        self,
        tree: Tree,
        before: Mapping[str, Snapshot | None],
        after: Mapping[str, Snapshot | None],
        folders: list[str],
    ) -> Manifest:
        def state(file: Snapshot | None) -> FileState | None:
            return file.state if file else None

        return Manifest(
            dist=tree.dist,
            version=tree.version,
            groups=self.series.groups,
            patches=tuple(
                PatchId(name=patch.name, sha256=digest(patch.text)) for patch in self.series.patches
            ),
            digest=self.series.digest,
            vllm_av=__version__,
            applied_at=self.at.isoformat(timespec="seconds"),
            changes=tuple(
                Change(path=path, before=state(file), after=state(after.get(path)))
                for path, file in before.items()
            ),
            folders=tuple(folders),
        )


def goal_of(
    tree: Tree, series: Series, manifest: Manifest | None, at: datetime | None = None
) -> Goal:
    """Apply a series in memory.

    Args:
        at: when; None: now.

    Raises:
        PatchError: AV-PATCH-NOT-PRISTINE, AV-PATCH-CONFLICT, AV-PATCH-STATE.
    """
    modes = {diff.path: diff.new_mode or 0 for patch in series.patches for diff in patch.diffs}
    pristine = pristine_files(tree, manifest, modes, series)
    files: Files = {path: file.content if file else None for path, file in pristine.items()}
    for patch in series.patches:
        files |= apply_patch(patch, files).after
    at = at or datetime.now(UTC)
    mtime_ns = int(at.timestamp() * 1e6) * 1000

    def patched(path: str, content: bytes | None) -> Snapshot | None:
        if content is None:
            return None
        old = pristine[path]
        mode = old.state.mode if old else modes[path] & 0o777
        return Snapshot(FileState.of(content, mode, mtime_ns), content)

    wanted = {path: patched(path, content) for path, content in files.items()}
    for path in [path for path in wanted if sum_of(wanted[path]) == sum_of(pristine[path])]:
        del wanted[path], pristine[path]
    record = _pristine_record(tree, manifest)
    pristine[tree.record_path] = record
    bytecode = pristine_bytecode(tree, manifest, pristine)
    text = record.content + _record_lines(tree, pristine | bytecode, wanted, record.content)
    wanted[tree.record_path] = Snapshot(FileState.of(text, record.state.mode, mtime_ns), text)
    return Goal(series, pristine, bytecode, wanted, at)


def pristine_files(
    tree: Tree,
    manifest: Manifest | None,
    paths: Iterable[str],
    series: Series | None = None,
) -> dict[str, Snapshot | None]:
    """Files as the wheel brought them (None: it did not bring that one).

    Args:
        series: where its patches were applied by other means, they are taken back in memory;
            RECORD proves the result.

    Raises:
        PatchError: AV-PATCH-NOT-PRISTINE, naming every file that somebody changed, and for which
            no original is stored; AV-PATCH-STATE.
    """
    known = manifest.sources if manifest else {}
    found: dict[str, Snapshot | None] = {}
    foreign = []
    for path in paths:
        if _through_link(tree, path):
            foreign.append(path)
            continue
        if path in known:
            found[path] = original(tree, known[path])
            continue
        found[path] = file = snapshot(tree.site / path)
        if not _proved(tree, path, file):
            found[path] = file = _without(series, path, file)
            if not _proved(tree, path, file):
                foreign.append(path)
    if foreign:
        raise PatchError(
            Code.PATCH_NOT_PRISTINE,
            f"not as the wheel of {tree.dist} {tree.version} brought it: "
            f"{named(tree.site, foreign)}",
            "the files that the series touches are pristine",
            "undo that edit, or run `pip install --force-reinstall --no-deps "
            f"{tree.dist}=={tree.version}`",
        )
    return found


def pristine_bytecode(
    tree: Tree, manifest: Manifest | None, sources: Mapping[str, Snapshot | None]
) -> dict[str, Snapshot | None]:
    """Bytecode that was compiled from pristine ``sources``: stored, or not yet replaced."""
    known = manifest.sources if manifest else {}
    fresh = [
        path
        for path, file in sources.items()
        if path not in known and content_sum(tree.site / path) == sum_of(file)
    ]
    found = {path: snapshot(tree.site / path) for path in bytecode_of(tree.site, fresh)}
    for change in manifest.changes if manifest else ():
        if change.is_bytecode and source_of(change.path) in sources:
            found[change.path] = original(tree, change)
    return found


def _through_link(tree: Tree, path: str) -> bool:
    """Does a folder on the way to the file lead elsewhere? A wheel brings no such folders."""
    parent = (tree.site / path).parent
    return parent.resolve() != parent


def _proved(tree: Tree, path: str, file: Snapshot | None) -> bool:
    return tree.is_pristine(path, file.content if file else None)


def _without(series: Series | None, path: str, file: Snapshot | None) -> Snapshot | None:
    """A file with the patches of a series taken back; the file itself where that fails."""
    content = file.content if file else None
    patches = series.patches if series else ()
    diffs = [diff for patch in patches for diff in patch.diffs if diff.path == path]
    try:
        for diff in reversed(diffs):
            content, _ = apply_diff(reverse_diff(diff), content)
    except PatchError:
        return file
    if content is None:
        return None
    mode = file.state.mode if file else (diffs[0].old_mode or 0) & 0o777
    mtime_ns = file.state.mtime_ns if file else time.time_ns()
    return Snapshot(FileState.of(content, mode, mtime_ns), content)


def _pristine_record(tree: Tree, manifest: Manifest | None) -> Snapshot:
    known = manifest.sources.get(tree.record_path) if manifest else None
    file = original(tree, known) if known else snapshot(tree.site / tree.record_path)
    assert file is not None
    own = tree.own_record(file.content)
    return Snapshot(FileState.of(own, file.state.mode, file.state.mtime_ns), own)


def _record_lines(
    tree: Tree,
    pristine: Mapping[str, Snapshot | None],
    wanted: Mapping[str, Snapshot | None],
    record: bytes,
) -> bytes:
    """What RECORD gains, so that uninstalling vLLM also removes what a series brought."""
    state = tree.state.name
    lines = [record_line(f"{state}/{MANIFEST}", None)]
    lines += [
        record_line(f"{state}/{ORIGINALS}/{path}", None) for path, file in pristine.items() if file
    ]
    lines += [
        record_line(path, new.content)
        for path, new in wanted.items()
        if new and pristine[path] is None
    ]
    newline = "\r\n" if b"\r\n" in record else "\n"
    start = "" if record.endswith(b"\n") or not record else newline
    return (start + newline.join([*lines, ""])).encode()
