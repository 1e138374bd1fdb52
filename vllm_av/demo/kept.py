"""Checkpoints that are made once and kept in the cache.

Rule: a folder under its final name is whole. It is written beside and renamed, under a lock that
the system drops with the process, and it carries the sha256 of each of its files, which are
compared on every use; one that differs, lacks a file or has another one is made anew.
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_av.cache import cache_dir, unusable

_MANIFEST = "sha256.json"


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``name`` of the cache, from the cache or made now.

    Args:
        name: has to change whenever what ``make`` writes does.
        make: called with an existing, empty folder, which it fills. What it cannot read it has
            to tell itself: its ``OSError`` and ``SafetensorError`` are taken for the writing's.

    Raises:
        SetupError: ``AV-CACHE-DIR`` if the cache cannot be written.
    """
    from safetensors import SafetensorError

    root = cache_dir() / "checkpoints"
    try:
        return _kept(root, name, make)
    except OSError as error:
        raise unusable(root, error.strerror or str(error)) from error
    except SafetensorError as error:  # its own class, for a full disk as well
        raise unusable(root, str(error)) from error


def _kept(root: Path, name: str, make: Callable[[Path], None]) -> Path:
    root.mkdir(exist_ok=True)
    final = root / name
    with _locked(root / f"{name}.lock"):
        if is_whole(final):
            return final
        # Only the lock's holder writes these two, so what lies there was left by a killed process.
        work, old = root / f"{name}.part", root / f"{name}.old"
        for leftover in (work, old):
            _remove(leftover)
        try:
            work.mkdir()
            make(work)
            _seal(work)
            if final.exists():
                final.rename(old)
            work.rename(final)
        finally:
            for leftover in (work, old):
                _remove(leftover)
    return final


def _remove(path: Path) -> None:
    """Whatever it is: what stood in a folder's place may have been a file or a link."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def is_whole(folder: Path) -> bool:
    """Whether ``folder`` holds exactly the files, and these the bytes, that were written into it.

    One file more counts: vLLM loads every ``*.safetensors`` that it finds.
    """
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        names = {file.name for file in folder.iterdir()} - {_MANIFEST}
        if not isinstance(manifest, dict) or not names or names != manifest.keys():
            return False
        return all(sha256(folder / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError, RecursionError):
        return False


def sha256(file: Path) -> str:
    """Of the bytes of ``file``, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _seal(folder: Path) -> None:
    digests = {file.name: sha256(file) for file in sorted(folder.iterdir())}
    text = json.dumps(digests, indent=2) + "\n"
    (folder / _MANIFEST).write_text(text, encoding="utf-8")


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
