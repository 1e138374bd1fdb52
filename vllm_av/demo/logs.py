"""Where a run's arms log: a folder of its own below the cache's ``demo``.

Rule: of the runs that have ended the last few are kept; one under way holds a lock in its folder,
which the system drops with the process, and loses nothing.
"""

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from vllm_av.cache import cache_dir, unusable

KEPT = 5
"""So many runs' logs are there at most, this run's included, beside those of runs under way."""

_LOCK = "lock"


@contextmanager
def own_logs() -> Iterator[Path]:
    """A folder for the logs of this run, empty but for its lock; those of older runs go now.

    Raises:
        SetupError: ``AV-CACHE-DIR`` if it cannot be made.
    """
    root = cache_dir() / "demo"
    with ExitStack() as held:
        try:
            root.mkdir(exist_ok=True)
            folder = Path(mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=root))
            held.enter_context(_locked(folder))
            _forget(root)
        except OSError as error:
            raise unusable(root, error.strerror or str(error)) from error
        yield folder


def _forget(root: Path) -> None:
    for folder in sorted(file for file in root.iterdir() if file.is_dir())[:-KEPT]:
        with suppress(OSError):  # it is in use, or another run removes it
            with _locked(folder):
                pass  # on NFS a folder with an open file cannot be removed
            shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold ``folder``, in which no other process then holds the lock."""
    # Open for writing, without which NFS locks nothing.
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
