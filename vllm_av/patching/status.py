"""In which state is an installed vLLM? Reads only, so that anything may ask at any time."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, PatchError
from vllm_av.patching.edge import told
from vllm_av.patching.files import locked
from vllm_av.patching.goal import pristine_files
from vllm_av.patching.install import select, to_undo_edits
from vllm_av.patching.recovery import leftovers, outlived
from vllm_av.patching.series import Series, read_series, series_root, versions
from vllm_av.patching.state import Manifest, drifted, load_manifest, named, original, put_back
from vllm_av.patching.transaction import pending
from vllm_av.patching.tree import Tree, find_tree


class State(StrEnum):
    """One word for a tree."""

    PRISTINE = "pristine"
    """As the wheel brought it, where the series looks."""
    APPLIED = "applied"
    """The series that this vllm_av carries is applied."""
    OUTDATED = "outdated"
    """Another text of the series, or a choice of its groups, is applied."""
    DRIFTED = "drifted"
    """Somebody edited files that the applied series had changed."""
    EDITED = "edited"
    """Nothing is applied, and somebody edited files that the series would change."""
    INCOMPLETE = "incomplete"
    """Applied, but some files are as the wheel brought them: somebody put them back."""
    DAMAGED = "damaged"
    """Applied, but the stored originals are not those that were stored: no way back."""
    UNRECORDED = "unrecorded"
    """The files are patched by other means, or the record of it is lost."""
    INTERRUPTED = "interrupted"
    """A command was killed in between; the next one ends it."""
    STALE = "stale"
    """The record speaks of a vLLM that has been replaced."""
    UNSUPPORTED = "unsupported"
    """There is no series for this version of vLLM."""
    MISSING = "missing"
    """There is no vLLM."""


@dataclass(frozen=True)
class Status:
    """The answer of :func:`status`."""

    state: State
    line: str
    """What it is and what to do, for people."""
    site: str | None = None
    dist: str | None = None
    version: str | None = None
    groups: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    applied_at: str | None = None
    applied_by: str | None = None
    """Version of vllm_av."""
    files: tuple[str, ...] = ()
    """Edited, drifted, incomplete, unrecorded: these files. Applied: those that were changed."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for ``--json``."""
        return asdict(self)


@told()
def status(site: Path | None = None) -> Status:
    """The state of this interpreter's vLLM, or of the one below ``site``.

    Raises:
        PatchError: AV-PATCH-TWO-VLLM, AV-PATCH-BUSY, AV-PATCH-STATE, AV-PATCH-SERIES.
    """
    try:
        tree = find_tree(site)
    except PatchError as error:
        if error.code is not Code.PATCH_NO_VLLM:
            raise
        return Status(State.MISSING, f"{error.given}; {error.fix}")
    with locked(tree.site):
        return _status(tree)


def _status(tree: Tree) -> Status:
    def answer(state: State, line: str, **more: Any) -> Status:
        line = f"{tree.dist} {tree.version}: {line}"
        return Status(state, line, str(tree.site), tree.dist, tree.version, **more)

    if found := pending(tree):
        verb = found[0].verb
        return answer(
            State.INTERRUPTED,
            f"a command to {verb} was stopped half-way; run `vllm-av patch apply` or "
            "`vllm-av patch revert`, which first ends it",
        )
    manifest = load_manifest(tree)
    try:
        series = select(read_series(series_root(), tree.version), tree)
    except PatchError as error:
        if error.code is not Code.PATCH_NO_SERIES:
            raise
        series = None
    if manifest:
        return _patched(tree, manifest, series)
    if series is None:
        served = ", ".join(versions(series_root()))
        return answer(State.UNSUPPORTED, f"no series for it (there is one for {served})")
    paths = sorted({diff.path for patch in series.patches for diff in patch.diffs})
    files = tuple(path for path in paths if not tree.is_pristine(path, tree.read(path)))
    try:
        pristine_files(tree, None, paths, series)
    except PatchError as error:
        return answer(State.EDITED, f"{error.given}; {error.fix}", files=files)
    if files:
        line = "patched by other means, or the record is lost; `vllm-av patch apply` takes it over"
        return answer(State.UNRECORDED, line, files=files)
    spare = "; a stopped command left files, which the next one removes" if leftovers(tree) else ""
    return answer(State.PRISTINE, f"not patched; `vllm-av patch apply` applies the series{spare}")


def _patched(tree: Tree, manifest: Manifest, series: Series | None) -> Status:
    def answer(state: State, line: str, files: tuple[str, ...]) -> Status:
        return Status(
            state,
            f"{tree.dist} {tree.version}: {line}",
            str(tree.site),
            tree.dist,
            tree.version,
            manifest.groups,
            tuple(patch.name for patch in manifest.patches),
            manifest.applied_at,
            manifest.vllm_av,
            files,
        )

    if why := outlived(tree, manifest):
        return answer(State.STALE, f"{why}; the next apply or revert removes the record", ())
    if edited := drifted(tree.site, manifest.sources):
        names = named(tree.site, edited)
        line = f"edited since it was patched: {names}; {to_undo_edits(tree)}"
        return answer(State.DRIFTED, f"{line} and run `vllm-av patch apply`", tuple(edited))
    if missed := put_back(tree.site, manifest.sources):
        line = f"the original again: {named(tree.site, missed)}; run `vllm-av patch apply`"
        return answer(State.INCOMPLETE, line, tuple(missed))
    try:
        for change in manifest.sources.values():
            original(tree, change)
    except PatchError as error:
        return answer(State.DAMAGED, f"applied, but {error.given}; {error.fix}", ())
    when = f"{len(manifest.patches)} patches applied {manifest.applied_at}"
    by = f"by vllm_av {manifest.vllm_av}"
    files = tuple(path for path in manifest.sources if path != tree.record_path)
    if series and series.digest == manifest.digest:
        return answer(State.APPLIED, f"{when} {by}", files)
    return answer(
        State.OUTDATED, f"{when} {by}; `vllm-av patch apply` brings this version's series", files
    )
