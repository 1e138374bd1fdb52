"""Holds a state file for one server.

The lock lies beside the file, since the file itself is a new one after each write. It ends with the
process, however that ends.

Rule: who has not claimed a state file does not write it.
"""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from vllm_av.errors import Code, StateError
from vllm_av.state import file


class Claim:
    """A state file that this process alone writes.

    Args:
        path: the file; it need not be there.

    Raises:
        StateError: ``AV-STATE-WRITE`` where it cannot be written, ``AV-STATE-BUSY`` where another
            server writes it.
    """

    def __init__(self, path: Path) -> None:
        try:
            if path.exists() and not stat.S_ISREG(path.stat().st_mode):
                raise OSError("it is not an ordinary file")
            lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        except (OSError, ValueError) as error:
            raise file.unwritable(path, error) from error
        try:
            _lock(lock, path)
            # Nobody else writes here: what lies beside it was left by one that was killed.
            file.clear_parts(path)
        except BaseException:
            os.close(lock)
            raise
        self._lock: int | None = lock

    def release(self) -> None:
        """Let another one have it. Again is fine."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                os.close(lock)


def _lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some file systems know no such locks; there the last one to write is the last.
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise StateError(
                Code.STATE_BUSY,
                given=f"the state in {path} is kept by another server that runs",
                allowed="one server to a state_file",
                fix="none needed: this one goes on from it and keeps nothing; name another "
                "state_file to keep what it learns",
            ) from error
