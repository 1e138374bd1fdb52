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
    wanted: Mapping[str, Snapshot | None]

    def reached(self, tree: Tree) -> bool:
        """Is every file as it shall be?"""
        return all(
            content_sum(tree.site / path) == sum_of(self.wanted[path]) for path in self.wanted
        )

    def plan(self, tree: Tree, manifest: Manifest | None) -> Plan:
        """The transaction from the tree as it is, with ``manifest`` applied, to this goal."""
        dropped = [path for path in manifest.sources if path not in self.wanted] if manifest else []
        stored = pristine_files(tree, manifest, self.wanted)
        end: dict[str, Snapshot | None] = {}
        end |= dict.fromkeys(bytecode_of(tree.site, [*self.wanted, *dropped]))
        end |= pristine_files(tree, manifest, dropped)
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
            applied_at=datetime.now(UTC).isoformat(timespec="seconds"),
            changes=tuple(
                Change(path=path, before=state(file), after=state(after.get(path)))
                for path, file in before.items()
            ),
            folders=tuple(folders),
        )


def goal_of(tree: Tree, series: Series, manifest: Manifest | None) -> Goal:
    """Apply a series in memory.

    Raises:
        PatchError: AV-PATCH-NOT-PRISTINE, AV-PATCH-CONFLICT, AV-PATCH-STATE.
    """
    modes = {diff.path: diff.new_mode or 0 for patch in series.patches for diff in patch.diffs}
    pristine = pristine_bytes(tree, manifest, modes)
    files: Files = dict(pristine)
    for patch in series.patches:
        files |= apply_patch(patch, files).after
    now = time.time_ns()
    snapshots = pristine_files(tree, manifest, [*pristine, tree.record_path])
    wanted: dict[str, Snapshot | None] = {}
    for path, content in files.items():
        if content != pristine[path]:
            old = snapshots[path]
            mode = old.state.mode if old else modes[path] & 0o777
            wanted[path] = (
                Snapshot(FileState.of(content, mode, now), content) if content is not None else None
            )
    record = snapshots[tree.record_path]
    assert record is not None
    text = record.content + _record_lines(tree, snapshots, wanted, record.content)
    wanted[tree.record_path] = Snapshot(FileState.of(text, record.state.mode, now), text)
    return Goal(series, wanted)


def pristine_bytes(tree: Tree, manifest: Manifest | None, paths: Iterable[str]) -> Files:
    """Files as the wheel brought them (None: it did not bring that one).

    Raises:
        PatchError: AV-PATCH-NOT-PRISTINE, naming every file that somebody changed, and for which
            no original is stored; AV-PATCH-STATE.
    """
    found = pristine_files(tree, manifest, paths)
    sources = {p: f.content if f else None for p, f in found.items() if not p.endswith(".pyc")}
    known = manifest.sources if manifest else {}
    foreign = [
        path
        for path, content in sources.items()
        if path not in known and not tree.is_pristine(path, content)
    ]
    if foreign:
        raise PatchError(
            Code.PATCH_NOT_PRISTINE,
            f"not as the wheel of {tree.dist} {tree.version} brought it: {', '.join(foreign)}",
            "the files that the series touches are pristine",
            f"undo that edit, or run `pip install --force-reinstall --no-deps "
            f"{tree.dist}=={tree.version}`",
        )
    return sources


def pristine_files(
    tree: Tree, manifest: Manifest | None, sources: Iterable[str]
) -> dict[str, Snapshot | None]:
    """Sources and their bytecode as they were before any series; what is stored comes first."""
    known = manifest.sources if manifest else {}
    found: dict[str, Snapshot | None] = {}
    for path in sources:
        found[path] = original(tree, known[path]) if path in known else snapshot(tree.site / path)
    # Bytecode of a file that was never patched is pristine too; any other was compiled from a
    # patched file, unless it is in the store.
    fresh = bytecode_of(tree.site, [path for path in found if path not in known])
    found |= {path: snapshot(tree.site / path) for path in fresh}
    for change in manifest.changes if manifest else ():
        if change.is_bytecode and source_of(change.path) in found:
            found[change.path] = original(tree, change)
    return found


def _record_lines(
    tree: Tree,
    pristine: Mapping[str, Snapshot | None],
    wanted: Mapping[str, Snapshot | None],
    record: bytes,
) -> bytes:
    """What RECORD gains, so that uninstalling vLLM also removes what a series brought."""
    state = tree.state.name
    lines = [record_line(f"{state}/{MANIFEST}", None)]
    for path, file in pristine.items():
        if file and (path in wanted or path == tree.record_path or source_of(path) in wanted):
            lines.append(record_line(f"{state}/{ORIGINALS}/{path}", None))
        elif file is None and (new := wanted.get(path)):
            lines.append(record_line(path, new.content))
    text = "\n".join(lines) + "\n"
    newline = "\r\n" if b"\r\n" in record else "\n"
    start = "" if record.endswith(b"\n") or not record else newline
    return (start + text.replace("\n", newline)).encode()
