"""Killed at every file operation, and failing at every one: never half applied in silence.

A child process runs the command with the functions of ``os`` that change files wrapped: the n-th
call ends it by SIGKILL (a write first writes half of its bytes), or fails like a broken disk.
"""

import errno
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NoReturn

import pytest

from tests.unit.patching.trees import (
    FILES,
    FIRST,
    SECOND,
    Seen,
    install,
    look,
    package,
    patched,
    write_series,
)
from vllm_av.errors import Code, PatchError
from vllm_av.patching import install as verbs
from vllm_av.patching import status as status_module
from vllm_av.patching.install import apply, revert
from vllm_av.patching.series import Series
from vllm_av.patching.status import State, status
from vllm_av.patching.tree import Tree, find_tree

CHANGING = [
    "chown",
    "fchmod",
    "fsync",
    "mkdir",
    "open",
    "rename",
    "replace",
    "rmdir",
    "symlink",
    "unlink",
    "utime",
    "write",
]
FINISHED, REFUSED, SURPRISED = 0, 3, 4

Action = Callable[[Tree], object]

START = {
    path: FILES[path] for path in ("vllm/__init__.py", "vllm/config.py", "vllm/worker/gone.py")
}
NEW: dict[str, bytes | None] = {
    "vllm/config.py": FIRST["vllm/config.py"],
    "vllm/worker/fresh/new.py": b"new = 1\n",
    "vllm/worker/gone.py": None,
}
OLD: dict[str, bytes | None] = {
    "vllm/config.py": SECOND["vllm/config.py"],
    "vllm/older/new.py": b"older = 1\n",
}
PATCHED = patched(NEW, start=START)
WHOLE = [START, PATCHED, patched(OLD, start=START)]
"""What the package may be when no command was cut short."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only a power cut tells synced from unsynced; a killed process does not.
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    # Reading every process's maps thousands of times is slow; test_inuse.py tests it.
    monkeypatch.setattr(verbs, "refuse_if_used", lambda tree, verb: None)


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of trees are made here."""
    memory = Path("/dev/shm")
    folder = Path(mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def site(base: Path) -> Path:
    return install(base / "site", START)


@pytest.fixture
def pair(base: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Series, Series]:
    """The series of this vllm_av, and an older one to upgrade from."""
    monkeypatch.setattr(status_module, "series_root", lambda: base / "new")
    return write_series(base / "new", NEW, start=START), write_series(
        base / "old", OLD, start=START
    )


def _count_calls(at: int, then: Callable[[], None]) -> None:
    """Wrap what changes files: call number ``at`` (from 0), and each later one, runs ``then``."""
    numbers = count()

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            reads = real is real_open and not args[1] & (os.O_WRONLY | os.O_RDWR)
            if not reads and next(numbers) >= at:
                if real is real_write:
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                then()
            return real(*args, **options)

        return counted

    real_open, real_write = os.open, os.write
    for name in CHANGING:
        setattr(os, name, wrap(getattr(os, name)))


def _kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _in_child(action: Callable[[], object]) -> int:
    """Exit status of a child that runs ``action``; negative: the signal that ended it."""
    child = os.fork()
    if child == 0:
        end = SURPRISED
        try:
            action()
            end = FINISHED
        except PatchError as error:
            end = REFUSED if error.code is Code.PATCH_WRITE else SURPRISED
        finally:
            os._exit(end)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _killed_at_each_operation(start: Path, work: Path, action: Action) -> Iterator[Tree]:
    """A copy of ``start`` for each operation of ``action``, as it is after the kill there."""
    for number in count():
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(start, work, symlinks=True)
        tree = find_tree(work)

        def run(tree: Tree = tree, number: int = number) -> None:
            _count_calls(number, _kill)
            action(tree)

        end = _in_child(run)
        if end == FINISHED:
            assert number > 20
            return
        assert end == -signal.SIGKILL
        yield tree


def _check_both_ways(tree: Tree, spare: Path, series: Series, pristine: Seen) -> str:
    """Status tells the truth and changes nothing; apply and revert both end well."""
    killed = look(tree.site)
    found = status(tree.site)
    assert look(tree.site) == killed
    if package(tree.site) not in WHOLE:
        assert found.state is State.INTERRUPTED
    shutil.rmtree(spare, ignore_errors=True)
    shutil.copytree(tree.site, spare, symlinks=True)
    assert apply(tree, series).done in {"applied", "already applied", "upgraded", "repaired"}
    assert package(tree.site) == PATCHED
    assert status(tree.site).state is State.APPLIED
    assert not (tree.state / "transaction").exists()
    other = find_tree(spare)
    assert revert(other).done in ("reverted", "nothing to revert")
    assert look(spare) == pristine
    revert(tree)
    assert look(tree.site) == pristine
    return str(found.state)


def _apply(series: Series) -> Action:
    return lambda tree: apply(tree, series)


def _start(site: Path, series: Series | None) -> Seen:
    pristine = look(site)
    if series:
        apply(find_tree(site), series)
    return pristine


@pytest.mark.parametrize("what", ["apply", "revert", "upgrade"])
def test_killed_anywhere(site: Path, base: Path, pair: tuple[Series, Series], what: str) -> None:
    series, old = pair
    pristine = _start(site, {"apply": None, "revert": series, "upgrade": old}[what])
    action = revert if what == "revert" else _apply(series)
    states = [
        _check_both_ways(tree, base / "spare", series, pristine)
        for tree in _killed_at_each_operation(site, base / "work", action)
    ]
    assert State.INTERRUPTED in states


def test_killed_anywhere_while_ending_what_was_killed(
    site: Path, base: Path, pair: tuple[Series, Series]
) -> None:
    series, _ = pair
    pristine = look(site)
    halfway = base / "halfway"
    for tree in _killed_at_each_operation(site, base / "first", _apply(series)):
        if package(tree.site) not in WHOLE:
            shutil.copytree(tree.site, halfway, symlinks=True)
            break
    for tree in _killed_at_each_operation(halfway, base / "work", revert):
        _check_both_ways(tree, base / "spare", series, pristine)


def test_killed_anywhere_while_putting_back_after_a_failure(
    site: Path, base: Path, pair: tuple[Series, Series]
) -> None:
    series, _ = pair
    pristine = look(site)

    def fail_late(tree: Tree) -> None:
        real = os.replace

        def replace(source: Any, target: Any) -> None:
            if str(target).endswith("new.py") and "after" in str(source):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(target))
            real(source, target)

        os.replace = replace
        with pytest.raises(PatchError, match="every file was put back"):
            apply(tree, series)

    def run(tree: Tree) -> None:
        # Counted outside, failing inside: the wrapped functions must stay the outer ones.
        fail_late(tree)

    for tree in _killed_at_each_operation(site, base / "work", run):
        _check_both_ways(tree, base / "spare", series, pristine)


@pytest.mark.parametrize(
    ("what", "once"),
    [
        ("apply", True),
        ("apply", False),
        ("revert", True),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (("revert", False), ("upgrade", True), ("upgrade", False))
        ),
    ],
)
def test_a_disk_that_fails_anywhere(
    site: Path, base: Path, pair: tuple[Series, Series], what: str, once: bool
) -> None:
    series, old = pair
    pristine = _start(site, {"apply": None, "revert": series, "upgrade": old}[what])
    action = revert if what == "revert" else _apply(series)
    work = base / "work"
    for number in count():
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(site, work, symlinks=True)
        tree = find_tree(work)

        def run(tree: Tree = tree, number: int = number) -> None:
            failed = []

            def fail() -> None:
                if not (once and failed):
                    failed.append(True)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            _count_calls(number, fail)
            action(tree)

        end = _in_child(run)
        if end == FINISHED:
            assert number > 20
            return
        assert end == REFUSED
        _check_both_ways(tree, base / "spare", series, pristine)


@pytest.mark.parametrize("limit", [0, 10, 300, 1000])
def test_no_room(site: Path, pair: tuple[Series, Series], limit: int) -> None:
    series, _ = pair
    before = look(site)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        apply(find_tree(site), series)

    assert _in_child(run) == REFUSED
    assert look(site) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("locked", [".", "vllm/worker"])
def test_a_folder_that_may_not_be_written(
    site: Path, base: Path, pair: tuple[Series, Series], locked: str
) -> None:
    series, _ = pair
    for folder in (base, *base.parents):
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    for path in (site, *site.rglob("*")):
        os.chown(path, 65534, 65534)
    (site / locked).chmod(0o555)
    before = look(site)

    def run() -> None:
        os.setegid(65534)
        os.seteuid(65534)
        apply(find_tree(site), series)

    assert _in_child(run) == REFUSED
    assert look(site) == before


def test_edited_between_the_kill_and_the_next_command(
    site: Path, base: Path, pair: tuple[Series, Series]
) -> None:
    series, _ = pair
    for tree in _killed_at_each_operation(site, base / "work", _apply(series)):
        if package(tree.site) not in WHOLE:
            break
    (tree.site / "vllm/config.py").write_bytes(b"mine = 1\n")
    before = look(tree.site)
    for action in (revert, _apply(series)):
        with pytest.raises(PatchError, match=r"interrupted and then vllm/config\.py") as caught:
            action(tree)
        assert caught.value.code is Code.PATCH_STATE
        assert look(tree.site) == before


def _halfway(site: Path, work: Path, action: Action) -> Tree:
    """The tree after a kill that left it neither here nor there, a new file among the rest."""
    for tree in _killed_at_each_operation(site, work, action):
        if package(tree.site) not in WHOLE and (tree.site / "vllm/worker/fresh/new.py").exists():
            return tree
    raise AssertionError


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
@pytest.mark.parametrize("what", ["apply", "upgrade"])
def test_installed_again_between_the_kill_and_the_next_command(
    site: Path, base: Path, pair: tuple[Series, Series], what: str, version: str
) -> None:
    series, old = pair
    _start(site, {"apply": None, "upgrade": old}[what])
    tree = _halfway(site, base / "work", _apply(series))
    # As pip does: what RECORD names goes, what it does not know stays.
    for path in tree.record:
        (tree.site / path).unlink(missing_ok=True)
    shutil.rmtree(tree.site / tree.info)
    again = {**START, "vllm/worker/extra.py": b"more = 1\n"}
    tree = find_tree(install(tree.site, again, version=version))
    assert status(tree.site).state is State.INTERRUPTED
    outcome = revert(tree)
    assert outcome.done == "nothing to revert"
    assert outcome.notes == ("dropped an interrupted apply: vLLM was installed again since",)
    assert package(tree.site) == again
    assert not tree.state.exists()
    assert status(tree.site).state is (State.PRISTINE if version == "0.32.0" else State.UNSUPPORTED)
