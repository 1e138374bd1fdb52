"""Files that somebody else wrote, read without waiting and only so far.

Rule: whatever lies at a path - a pipe, a device, a file of many megabytes - it is read or refused
at once.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class TooLargeError(ValueError):
    """A file has more in it than anything that it should be."""


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """A regular file, open for reading.

    Raises:
        OSError: it is not there, or cannot be read.
        ValueError: it is no regular file.
    """
    # Without waiting: a pipe that nobody writes to would hold the check for ever.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        with open(descriptor, "rb", closefd=False) as stream:
            yield stream
    finally:
        os.close(descriptor)


def some(stream: BinaryIO, most: int) -> bytes:
    """The next ``most`` bytes, or those that are left.

    Raises:
        ValueError: there is nothing to be had now, as in some of the kernel's files.
    """
    data: bytes | None = stream.read(most)
    if data is None:
        raise ValueError("nothing can be read from it")
    return data


def read_bytes(file: Path, most: int) -> bytes:
    """A regular file of at most ``most`` bytes.

    Raises:
        OSError: it is not there, or cannot be read.
        TooLargeError: it has more.
        ValueError: it is no regular file.
    """
    with opened(file) as stream:
        data = some(stream, most + 1)
    if len(data) > most:
        size = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
        raise TooLargeError(f"it has more than {size}")
    return data
