"""Each run has its own logs, and those of older runs go."""

import errno
import fcntl
import os
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from vllm_av.demo import logs
from vllm_av.demo.logs import KEPT, own_logs
from vllm_av.errors import Code, SetupError


def _ended(count: int) -> list[Path]:
    folders = []
    for _ in range(count):
        with own_logs() as folder:
            (folder / "none.log").write_text("said")
        folders.append(folder)
    return folders


def _flock_of_nfs(file: int, operation: int) -> None:
    """NFS makes a lock of the whole file of it, which asks for a descriptor open for writing."""
    if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    fcntl.lockf(file, operation)


def test_two_runs_at_once_have_two_folders_empty_but_for_the_lock(cache: Path) -> None:
    with own_logs() as first, own_logs() as second:
        assert first != second
        assert first.parent == second.parent == cache / "demo"
        for folder in (first, second):
            assert [file.name for file in folder.iterdir()] == ["lock"]


def test_the_last_runs_logs_are_kept_and_older_ones_go(cache: Path) -> None:
    for number in range(KEPT + 2):
        (cache / f"demo/2000010{number}-000000-x").mkdir(parents=True)
    (folder,) = _ended(1)
    assert (folder / "none.log").read_text() == "said"
    left = sorted(path.name for path in (cache / "demo").iterdir())
    assert left[:-1] == [f"2000010{number}-000000-x" for number in range(3, KEPT + 2)]
    assert left[-1] == folder.name


def test_a_run_under_way_keeps_its_logs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        monkeypatch.setattr("time.strftime", lambda _: "20000101-000000-")
        old = stack.enter_context(own_logs())
        monkeypatch.undo()
        monkeypatch.setenv("AV_CACHE", str(cache))
        _ended(KEPT + 1)
        assert old.is_dir()
    _ended(1)
    assert not old.exists()


def test_a_file_in_the_way_is_told(cache: Path) -> None:
    cache.mkdir()
    (cache / "demo").write_text("in the way")
    with pytest.raises(SetupError) as caught, own_logs():
        pass
    assert caught.value.code is Code.CACHE_DIR


def test_a_lock_is_one_that_nfs_gives(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "fcntl", SimpleNamespace(**vars(fcntl) | {"flock": _flock_of_nfs}))
    (cache / "demo" / "20000101-000000-x").mkdir(parents=True)
    _ended(KEPT)
    assert not (cache / "demo" / "20000101-000000-x").exists()


def test_a_run_that_cannot_begin_keeps_no_lock(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(root: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(logs, "_forget", unreadable)
    with pytest.raises(SetupError, match="Input/output error") as caught, own_logs():
        pass
    assert caught.value.code is Code.CACHE_DIR
    (folder,) = (cache / "demo").iterdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
