"""Write patches again from a patched tree that a developer edited further.

An edit goes into a new patch, into the patch that is named, or into the last one that touches the
file (:mod:`vllm_av.patching.fold`). Rule: an export without edits changes nothing.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, PatchError
from vllm_av.patching.edge import told
from vllm_av.patching.files import make_folder, not_written, replace_file
from vllm_av.patching.fold import Edits, fold, insert, place_of
from vllm_av.patching.needs import needs_of
from vllm_av.patching.series import PACKAGED, Files, Series, apply_patch
from vllm_av.patching.state import load_manifest
from vllm_av.patching.tree import PACKAGE, Source, Tree
from vllm_av.patching.verify import problems_of

_NO_TEXT = {".so", ".pyc"}


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    folder: str
    edited: tuple[str, ...]
    """Files that differ from what the series makes of them."""
    written: tuple[str, ...]
    """Names of the files that are new or changed."""
    notes: tuple[str, ...] = ()
    """What :func:`vllm_av.patching.verify.verify` will say of sizes and needs: the message of a
    patch is mended in its file."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for ``--json``."""
        return asdict(self)


def find_edits(tree: Tree, source: Source, series: Series) -> Edits:
    """The series applied to pristine files, and the files of the tree that differ from that.

    The tree may have the groups applied that come first in the series, and not the others.

    Raises:
        PatchError: AV-PATCH-EXPORT, where the tree does not have this series applied;
            AV-PATCH-CONFLICT.
    """
    manifest = load_manifest(tree)
    applied = series.only(manifest.groups) if manifest else None
    at = len(applied.patches) if applied else 0
    if (
        manifest is None
        or applied is None
        or manifest.digest != applied.digest
        or series.patches[:at] != applied.patches
    ):
        raise PatchError(
            Code.PATCH_EXPORT,
            f"{tree.site} does not have this series applied, so edits cannot be told from it",
            "a tree with the series applied, then edited",
            "run `vllm-av patch apply`, then edit, then export",
        )
    files: Files = {}
    steps = []
    made: Files = {}
    for number, patch in enumerate(series.patches):
        for diff in patch.diffs:
            if diff.path not in files:
                files[diff.path] = source.read(diff.path)
        steps.append(apply_patch(patch, files))
        files |= steps[-1].after
        if number < at:
            made |= steps[-1].after
    found: Files = {}
    for path in sorted(_paths(tree) | set(made)):
        content = tree.read(path)
        if path in made:
            if content != made[path]:
                found[path] = content
        elif not tree.is_pristine(path, content):
            if path not in tree.record and (tree.site / path).is_symlink():
                raise PatchError(
                    Code.PATCH_EXPORT,
                    f"{path} is a new link",
                    "new files are plain files",
                    "put a file in its place, or remove it",
                )
            found[path] = content
    return Edits(tuple(steps), at, found, source)


def _paths(tree: Tree) -> set[str]:
    """What may have been edited: the package's files on disk, and those that the wheel brought."""
    on_disk = {
        path.relative_to(tree.site).as_posix()
        for path in (tree.site / PACKAGE).rglob("*")
        if path.is_file() and path.suffix not in _NO_TEXT
    }
    listed = {p for p in tree.record if p.startswith(f"{PACKAGE}/") and Path(p).suffix != ".so"}
    return on_disk | listed


@told()
def export(
    tree: Tree,
    source: Source,
    series: Series,
    to: Path | None,
    *,
    into: str | None = None,
    new: tuple[str, str] | None = None,
    date: datetime,
) -> Exported:
    """Write the series with the tree's edits in it.

    Args:
        to: the folder to write to; None: where the series lies.
        source: pristine files.
        into: the patch that takes the edits.
        new: name and message of a new patch, last of its group, that takes them.
        date: when the change was made; written into a new patch.

    Raises:
        PatchError: as :func:`find_edits`, :func:`vllm_av.patching.fold.fold` and
            :func:`vllm_av.patching.fold.insert`, and AV-PATCH-WRITE.
    """
    if to is None and series.folder.parent.name == PACKAGED:
        raise PatchError(
            Code.PATCH_EXPORT,
            f"{series.folder} belongs to an installed vllm_av",
            "an export into a folder of your own, or from a checkout",
            "name a folder with --to",
        )
    to = to or series.folder
    edits = find_edits(tree, source, series)
    patches = insert(edits, *new, date) if new else fold(edits, into)
    exported = Series(series.version, to, tuple(patches))
    if problems := problems_of(exported, source):
        raise PatchError(
            Code.PATCH_EXPORT,
            f"verify would refuse the exported series: {'; '.join(problems)}",
            "a series that verify accepts",
            "mend that in the patched vLLM, or in the message, and export again",
        )
    texts = {patch.name: patch.text for patch in patches}
    listing = (series.folder / "series").read_bytes()
    texts["series"] = _listed(listing, series, new[0]) if new else listing
    try:
        written = tuple(_write(to, texts))
    except OSError as error:
        raise not_written(to, error, left="the export is incomplete") from error
    return Exported(str(to), tuple(edits.found), written, tuple(needs_of(exported, source.read)))


def _listed(listing: bytes, series: Series, name: str) -> bytes:
    """``series`` with a new name in its place; comments and blank lines stay where they are."""
    place = place_of(name, [patch.name for patch in series.patches])
    lines = listing.decode().splitlines()
    entries = [at for at, line in enumerate(lines) if line.partition("#")[0].strip()]
    at = entries[place - 1] + 1 if place else entries[0]
    return "".join(f"{line}\n" for line in [*lines[:at], name, *lines[at:]]).encode()


def _write(folder: Path, texts: Mapping[str, bytes]) -> list[str]:
    written = []
    for name, text in texts.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != text:
            make_folder(path.parent)
            replace_file(path, text)
            written.append(name)
    return written
