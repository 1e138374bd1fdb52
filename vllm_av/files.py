"""Files that are whole or not there, whoever is killed while writing them, and however many write.

Rule: a new content is written beside the file, brought to disk and renamed; what is no ordinary
file, or has no end, is not read.
"""

import glob
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PART = "part"
_OURS = re.compile(rf"\d+-[0-9a-f]{{8}}\.{_PART}", re.ASCII)
"""What follows the file's name and a dot in the name of a part."""


def write(path: Path, content: bytes | memoryview) -> None:
    """Put ``content`` at ``path``, with the mode of what was there.

    Raises:
        OSError: what was there before is still there.
    """
    beside = _beside(path)
    try:
        with beside.open("xb") as file:
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _to_disk(path.parent)


def read(path: Path, largest: int) -> bytes:
    """The content of an ordinary file.

    Args:
        path: the file, or a link to it.
        largest: bytes that it may have, whole MiB.

    Raises:
        OSError: ``FileNotFoundError`` where there is none.
        ValueError: it is not an ordinary file, or too large.
    """
    _require_ordinary(path.stat())
    # It may be another one by now, and opening a pipe would wait for who writes into it.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        _require_ordinary(os.fstat(file.fileno()))
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest >> 20} MiB")
    return content


def try_to_write(path: Path) -> None:
    """See that :func:`write` could begin: make a part beside ``path``, and remove it.

    Raises:
        OSError: it could not.
    """
    beside = _beside(path)
    beside.open("xb").close()
    beside.unlink(missing_ok=True)


def clear_parts(path: Path, older_than: float = 0.0) -> None:
    """Remove what was begun beside ``path`` and not ended.

    Args:
        path: the file.
        older_than: seconds; 0 only where nobody may be writing it.

    Raises:
        OSError: it cannot be removed.
    """
    for part in _parts(path):
        with suppress(FileNotFoundError):
            if not older_than or time.time() - part.stat().st_mtime > older_than:
                part.unlink()


def _beside(path: Path) -> Path:
    # A name of its own: containers that share a folder may have equal process ids.
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.{_PART}")


def _parts(path: Path) -> Iterator[Path]:
    for part in path.parent.glob(f"{glob.escape(path.name)}.*.{_PART}"):
        if _OURS.fullmatch(part.name[len(path.name) + 1 :]):
            yield part


def _require_ordinary(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not an ordinary file")


def _to_disk(folder: Path) -> None:
    """Let the rename outlive a crash of the machine, where folders can be synchronised."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
