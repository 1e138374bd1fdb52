"""The record of what was applied, kept beside the tree that it describes.

    <site-packages>/vllm_av_patches-<dist>/
        manifest.json       what is applied; absent while nothing is
        originals/<path>    pristine files, byte for byte
        transaction/        only while a command runs or after it was killed

Rule: written whole and renamed into place, so that a reader sees all of it or none.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from glob import escape as glob_escape
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError

from vllm_av.errors import Code, PatchError
from vllm_av.patching.tree import Tree, digest

MANIFEST = "manifest.json"
ORIGINALS = "originals"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileState(_Frozen):
    """What a file is, apart from its bytes."""

    sha256: str
    mode: int
    """Permission bits."""
    mtime_ns: int
    link: str | None = None
    """Where the name is a symbolic link (some installers link to their cache): its target."""

    @classmethod
    def of(cls, content: bytes, mode: int, mtime_ns: int, link: str | None = None) -> "FileState":
        """The state of a file with that content."""
        return cls(sha256=digest(content), mode=mode, mtime_ns=mtime_ns, link=link)


class Change(_Frozen):
    """One file before and after; None: there is no such file."""

    path: str
    before: FileState | None
    after: FileState | None

    @property
    def is_bytecode(self) -> bool:
        """Bytecode may come and go; it is no edit."""
        return self.path.endswith(".pyc")


class PatchId(_Frozen):
    """Which patch, in which text."""

    name: str
    sha256: str


class Manifest(_Frozen):
    """What is applied to a tree, and what the tree was before."""

    format: int = 1
    dist: str
    version: str
    """The vLLM that was patched."""
    groups: tuple[str, ...]
    patches: tuple[PatchId, ...]
    digest: str
    vllm_av: str
    """The version of vllm_av that applied the series."""
    applied_at: str
    """UTC, ISO 8601."""
    changes: tuple[Change, ...]
    folders: tuple[str, ...]
    """Folders that the series made, deepest last."""

    @property
    def sources(self) -> dict[str, Change]:
        """The changes, bytecode left out, by path."""
        return {change.path: change for change in self.changes if not change.is_bytecode}


@dataclass(frozen=True)
class Snapshot:
    """A file with its bytes, as it is or shall be."""

    state: FileState
    content: bytes


def snapshot(path: Path) -> Snapshot | None:
    """A file as it is now; None where there is none."""
    try:
        content = path.read_bytes()
        link = os.readlink(path) if path.is_symlink() else None
        facts = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PatchError(
            Code.PATCH_WRITE,
            f"cannot read {path} ({error.strerror})",
            "the files that a series touches are plain files that the user may read",
            "mend that and run the command again",
        ) from error
    mode = stat.S_IMODE(facts.st_mode)
    return Snapshot(FileState.of(content, mode, facts.st_mtime_ns, link), content)


def bytecode_of(site: Path, sources: Iterable[str]) -> list[str]:
    """Compiled files, of any Python version, of the modules named."""
    found = []
    for source in sources:
        if not source.endswith(".py"):
            continue
        module = site / source
        cached = module.parent / "__pycache__"
        found += [
            path.relative_to(site).as_posix()
            for path in sorted(cached.glob(f"{glob_escape(module.stem)}.*.pyc"))
        ]
    return found


def source_of(bytecode: str) -> str:
    """``a/__pycache__/b.cpython-311.pyc`` -> ``a/b.py``; any other path is its own source."""
    if not bytecode.endswith(".pyc"):
        return bytecode
    path = PurePosixPath(bytecode)
    return (path.parent.parent / f"{path.name.partition('.')[0]}.py").as_posix()


def load_manifest(tree: Tree) -> Manifest | None:
    """What is applied; None where nothing is.

    Raises:
        PatchError: AV-PATCH-STATE, where the record cannot be read.
    """
    try:
        text = (tree.state / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Manifest.model_validate_json(text)
    except ValidationError:
        raise damaged(tree, f"{MANIFEST} cannot be read") from None


def original(tree: Tree, change: Change) -> Snapshot | None:
    """The pristine file of a change, from the store.

    Raises:
        PatchError: AV-PATCH-STATE, where the stored bytes are not those that were put there.
    """
    if change.before is None:
        return None
    try:
        content = (tree.state / ORIGINALS / change.path).read_bytes()
    except FileNotFoundError:
        raise damaged(tree, f"the original of {change.path} is gone") from None
    if digest(content) != change.before.sha256:
        raise damaged(tree, f"the original of {change.path} was changed")
    return Snapshot(change.before, content)


def damaged(tree: Tree, what: str) -> PatchError:
    """The refusal to go on with a record that cannot be trusted."""
    return PatchError(
        Code.PATCH_STATE,
        f"{what} in {tree.state}",
        "the record is as vllm_av wrote it",
        f"install {tree.dist}=={tree.version} again (pip install --force-reinstall --no-deps)",
    )


def named(site: Path, paths: Iterable[str]) -> str:
    """Files for a line to people; those that do not exist are told."""
    return ", ".join(p if (site / p).exists() else f"{p} (missing)" for p in paths)


def put_back(site: Path, changes: Mapping[str, Change]) -> list[str]:
    """Changed files that are as the wheel brought them, though the series is applied."""
    return [
        path
        for path, change in changes.items()
        if content_sum(site / path) == sum_of(change.before) != sum_of(change.after)
    ]


def drifted(site: Path, changes: Mapping[str, Change]) -> list[str]:
    """Changed files that are neither as the series left them nor as the wheel brought them."""
    return [
        path
        for path, change in changes.items()
        if content_sum(site / path) not in (sum_of(change.after), sum_of(change.before))
    ]


def content_sum(path: Path) -> str | None:
    """sha256 of a file as it is now; None where there is none."""
    return sum_of(snapshot(path))


def sum_of(file: Snapshot | FileState | None) -> str | None:
    """sha256 of a file as it was or shall be; None where there is none."""
    state = file.state if isinstance(file, Snapshot) else file
    return state.sha256 if state else None
