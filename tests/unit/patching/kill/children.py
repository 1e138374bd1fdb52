"""A command in a child process that is killed, or fails, at the n-th file operation.

The functions of ``os`` that change files are wrapped: the n-th call ends the process by SIGKILL (a
write first writes half of its bytes), or fails like a broken disk.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from tests.unit.patching.trees import FILES, FIRST, SECOND, Seen, look, package, patched
from vllm_av.errors import Code, PatchError
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


def count_calls(at: int, then: Callable[[], None]) -> None:
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


def kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def in_child(action: Callable[[], object]) -> int:
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


def killed_at_each_operation(start: Path, work: Path, action: Action) -> Iterator[Tree]:
    """A copy of ``start`` for each operation of ``action``, as it is after the kill there."""
    for number in count():
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(start, work, symlinks=True)
        tree = find_tree(work)

        def run(tree: Tree = tree, number: int = number) -> None:
            count_calls(number, kill)
            action(tree)

        end = in_child(run)
        if end == FINISHED:
            assert number > 20
            return
        assert end == -signal.SIGKILL
        yield tree


def check_both_ways(tree: Tree, spare: Path, series: Series, pristine: Seen) -> str:
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


def applying(series: Series) -> Action:
    return lambda tree: apply(tree, series)


def start_from(site: Path, series: Series | None) -> Seen:
    pristine = look(site)
    if series:
        apply(find_tree(site), series)
    return pristine
