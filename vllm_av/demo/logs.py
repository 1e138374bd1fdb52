"""Where a run's arms log: a folder of its own below the cache's ``demo``.

Rule: of the runs that have ended the last few are kept; one under way holds a lock on its folder,
which the system drops with the process, and loses nothing.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from vllm_av.cache import cache_dir, unusable

KEPT = 5
"""So many runs' logs are there at most, this run's included, beside those of runs under way."""


@contextmanager
def own_logs() -> Iterator[Path]:
    """An empty folder for the logs of this run; those of older runs are removed now.

    Raises:
        SetupError: ``AV-CACHE-DIR`` if it cannot be made.
    """
    root = cache_dir() / "demo"
    try:
        root.mkdir(exist_ok=True)
        folder = Path(mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=root))
        lock = _locked(folder)
        _forget(root)
    except OSError as error:
        raise unusable(root, error.strerror or str(error)) from error
    try:
        yield folder
    finally:
        os.close(lock)


def _forget(root: Path) -> None:
    for folder in sorted(file for file in root.iterdir() if file.is_dir())[:-KEPT]:
        with suppress(OSError):  # it is in use, or another run removes it
            os.close(_locked(folder))
            shutil.rmtree(folder)


def _locked(folder: Path) -> int:
    """A descriptor that holds ``folder`` as long as it is open."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
