"""Write patches again from a patched tree that a developer edited further.

An edit goes into a new patch, into the patch that is named, or into the last one that touches the
file. Rule: a patch whose files were not edited keeps its text byte for byte, so that an export
without edits changes nothing.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, PatchError
from vllm_av.patching.diff import REGULAR, malformed, render_diff
from vllm_av.patching.edge import told
from vllm_av.patching.files import make_folder, not_written, replace_file
from vllm_av.patching.mail import Patch, compose, compose_head, faults
from vllm_av.patching.script import compare, split_lines
from vllm_av.patching.series import PACKAGED, Files, Series, Step, apply_patch, refuse_bad_name
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

    def as_dict(self) -> dict[str, Any]:
        """The same, for ``--json``."""
        return asdict(self)


def edited_files(tree: Tree, source: Source, series: Series) -> tuple[list[Step], Files]:
    """The series applied to pristine files, and the files of the tree that differ from that.

    Raises:
        PatchError: AV-PATCH-EXPORT, where the tree does not have this series applied;
            AV-PATCH-CONFLICT; AV-PATCH-NOT-PRISTINE, where ``source`` cannot tell what an edited
            file was.
    """
    manifest = load_manifest(tree)
    if manifest is None or manifest.digest != series.digest:
        raise PatchError(
            Code.PATCH_EXPORT,
            f"{tree.site} does not have this series applied, so edits cannot be told from it",
            "a tree with the series applied, then edited",
            "run `vllm-av patch apply`, then edit, then export",
        )
    files: Files = {}
    steps = []
    for patch in series.patches:
        for diff in patch.diffs:
            if diff.path not in files:
                files[diff.path] = source.read(diff.path)
        steps.append(apply_patch(patch, files))
        files |= steps[-1].after
    on_disk = {
        path.relative_to(tree.site).as_posix()
        for path in (tree.site / PACKAGE).rglob("*")
        if path.is_file() and path.suffix not in _NO_TEXT
    }
    listed = {p for p in tree.record if p.startswith(f"{PACKAGE}/") and Path(p).suffix != ".so"}
    edited: Files = {}
    for path in sorted(on_disk | listed | set(files)):
        content = tree.read(path)
        if path in files:
            if content != files[path]:
                edited[path] = content
        elif not tree.is_pristine(path, content):
            if path not in tree.record and (tree.site / path).is_symlink():
                raise PatchError(
                    Code.PATCH_EXPORT,
                    f"{path} is a new link",
                    "new files are plain files",
                    "put a file in its place, or remove it",
                )
            edited[path] = content
    return steps, edited


def fold(steps: list[Step], edited: Files, source: Source, into: str | None = None) -> list[Patch]:
    """Every patch again, each edit folded into ``into`` or the last patch that touches the file.

    Raises:
        PatchError: AV-PATCH-EXPORT, where no patch, or a later one too, touches an edited file,
            or where a patch would be left without a change; AV-PATCH-NO-SERIES on an unknown one.
    """
    names = [step.patch.name for step in steps]
    if into is not None and into not in names:
        raise PatchError(
            Code.PATCH_NO_SERIES,
            f"no patch {into}",
            f"the series has: {', '.join(names)}",
            "name one of them, or make a new one with --new",
        )
    homes: dict[int, Files] = {}
    for path, content in edited.items():
        owners = [number for number, step in enumerate(steps) if path in step.after]
        home = names.index(into) if into else (owners[-1] if owners else None)
        if home is None or (owners and owners[-1] > home):
            owner = f"{names[owners[-1]]} changes it last" if owners else "no patch changes it"
            raise PatchError(
                Code.PATCH_EXPORT,
                f"{path} was edited, and {owner}",
                "an edit belongs to the last patch that changes its file",
                "name a patch with --patch, or make a new one with --new",
            )
        homes.setdefault(home, {})[path] = content
    return [_refold(step, homes.get(number, {}), source) for number, step in enumerate(steps)]


def _refold(step: Step, edits: Files, source: Source) -> Patch:
    if not edits:
        return step.render()
    kept = {diff.path: text for diff, text in step.parts() if diff.path not in edits}
    for path, new in edits.items():
        old = step.before[path] if path in step.before else source.read(path)
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
        new: name and message of a new patch, last in the series, that takes them.
        date: when the change was made; written into a new patch.

    Raises:
        PatchError: as :func:`edited_files`, :func:`fold` and :func:`new_patch`, and AV-PATCH-WRITE.
    """
    if to is None and series.folder.parent.name == PACKAGED:
        raise PatchError(
            Code.PATCH_EXPORT,
            f"{series.folder} belongs to an installed vllm_av",
            "an export into a folder of your own, or from a checkout",
            "name a folder with --to",
        )
    to = to or series.folder
    steps, edited = edited_files(tree, source, series)
    patches = fold(steps, {} if new else edited, source, into)
    if new:
        refuse_bad_name(new[0])
        if any(patch.name == new[0] for patch in patches):
            raise malformed(f"the series has a patch {new[0]} already")
        result: Files = {}
        for step in steps:
            result |= step.after
        before = {path: result[path] if path in result else source.read(path) for path in edited}
        patches.append(new_patch(*new, before, edited, date))
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
    texts["series"] = listing + (f"{new[0]}\n".encode() if new else b"")
    try:
        return Exported(str(to), tuple(edited), tuple(_write(to, texts)))
    except OSError as error:
        raise not_written(to, error, left="the export is incomplete") from error


def _write(folder: Path, texts: Mapping[str, bytes]) -> list[str]:
    written = []
    for name, text in texts.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != text:
            make_folder(path.parent)
            replace_file(path, text)
            written.append(name)
    return written
