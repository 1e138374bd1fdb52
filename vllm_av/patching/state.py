"""The record of what was applied, kept beside the tree that it describes.

    <site-packages>/vllm_av_patches-<dist>/
        manifest.json       what is applied; absent while nothing is
        originals/<path>    pristine files, byte for byte
        transaction/        only while a command runs or after it was killed

Rule: written whole and renamed into place, so that a reader sees all of it or none.
"""

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from glob import escape as glob_escape
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from vllm_av.errors import Code, PatchError
from vllm_av.patching.tree import Tree, digest

MANIFEST = "manifest.json"
ORIGINALS = "originals"


def _below(path: str) -> str:
    if not path or "\0" in path or {"", ".", ".."} & set(path.split("/")):
        raise ValueError("no path below site-packages")
    return path


PathBelow = Annotated[str, AfterValidator(_below)]
"""A path below site-packages, as patches name it: the record may not lead out of the tree."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileState(_Frozen):
    """What a file is, apart from its bytes."""

    sha256: str
    mode: Annotated[int, Field(ge=0, le=0o777)]
    """Permission bits."""
    mtime_ns: Annotated[int, Field(gt=-(2**63), lt=2**63)]
    link: str | None = None
    """Where the name is a symbolic link (some installers link to their cache): its target."""

    @classmethod
    def of(cls, content: bytes, mode: int, mtime_ns: int, link: str | None = None) -> "FileState":
        """The state of a file with that content."""
        return cls(sha256=digest(content), mode=mode, mtime_ns=mtime_ns, link=link)


class Change(_Frozen):
    """One file before and after; None: there is no such file."""

    path: PathBelow
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

    format: Literal[1] = 1
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
    folders: tuple[PathBelow, ...]
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
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise IsADirectoryError(errno.EISDIR, "no plain file", str(path))
        content = path.read_bytes()
        link = os.readlink(path) if path.is_symlink() else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PatchError(
            Code.PATCH_WRITE,
            f"cannot read {path} ({error.strerror})",
            "the files that a series touches are plain files that the user may read",
            "mend that and run the command again",
        ) from error
    mode = stat.S_IMODE(facts.st_mode) & 0o777
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


def read_record(tree: Tree, name: str) -> bytes | None:
    """A file of the record; None where there is none.

    Raises:
        PatchError: AV-PATCH-STATE, where the record or that file is something else.
    """
    if tree.state.is_symlink() or (tree.state.exists() and not tree.state.is_dir()):
        raise PatchError(
            Code.PATCH_STATE,
            f"{tree.state} is no folder of its own",
            "the folder that vllm_av keeps its record in, or nothing",
            "move it away and run the command again",
        )
    path = tree.state / name
    try:
        if not path.is_file() and os.path.lexists(path):
            raise damaged(tree, f"{name} is no plain file")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise damaged(tree, f"{path.parent.name} is no folder") from None


def load_manifest(tree: Tree) -> Manifest | None:
    """What is applied; None where nothing is.

    Raises:
        PatchError: AV-PATCH-STATE, where the record cannot be read.
    """
    text = read_record(tree, MANIFEST)
    if text is None:
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
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
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
        f"install {tree.dist}=={tree.version} again (pip install --force-reinstall --no-deps); "
        "the next apply or revert then removes the record",
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
