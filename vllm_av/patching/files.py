"""File operations that survive a power cut, and the lock on a tree.

Rule: a file of the tree is never written in place (installers hard-link site-packages into their
caches); a new file is written elsewhere, synced, and renamed over the old one.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vllm_av.errors import Code, PatchError

WAIT_SECONDS = 5.0


def write_file(path: Path, content: bytes, mode: int = 0o644, mtime_ns: int | None = None) -> None:
    """Write a file that does not exist yet, and sync it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(handle, left) :]
        os.fchmod(handle, mode)
        if mtime_ns is not None:
            os.utime(handle, ns=(mtime_ns, mtime_ns))
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Put a whole file in place of another, or of none."""
    fresh = unfinished(path)
    remove(fresh)
    write_file(fresh, content)
    os.replace(fresh, path)
    sync(path.parent)


def unfinished(path: Path) -> Path:
    """Where a file is written before it takes its place; a run that is killed leaves it."""
    return path.with_name(path.name + ".new")


def sync(folder: Path) -> None:
    """Make the renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, if there is one."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that it holds, if there is one. Links are not followed."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_folder(Path(entry.path))
        else:
            remove(Path(entry.path))
    os.rmdir(folder)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they exist."""
    if not folder.is_dir():
        make_folder(folder.parent)
        os.mkdir(folder)
        os.chmod(folder, 0o755)  # as the installer's: whoever reads vLLM may ask for its status


def same_owner(path: Path, model: Path) -> None:
    """Give ``path`` the owner of ``model``, as far as this user may."""
    facts = model.stat()
    if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.chown(path, facts.st_uid, facts.st_gid)


@contextmanager
def locked(folder: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold a tree alone. The lock is on the folder itself, so nothing is left behind.

    Raises:
        PatchError: AV-PATCH-BUSY, where another command holds it for longer than the wait.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise PatchError(
                        Code.PATCH_BUSY,
                        f"another patch command holds {folder}",
                        "one at a time",
                        f"wait for it to end and run the command again (waited {wait_seconds:g} s)",
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def not_written(folder: Path, error: OSError, *, left: str) -> PatchError:
    """What a failed write becomes. ``left`` says in which state the tree is."""
    where = error.filename or folder
    return PatchError(
        Code.PATCH_WRITE,
        f"cannot write {where} ({error.strerror}); {left}",
        f"the user may write {folder}, and there is room",
        "mend that and run the command again",
    )
