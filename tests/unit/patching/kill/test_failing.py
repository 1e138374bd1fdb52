"""A disk that fails at every file operation, or is full, or may not be written."""

import errno
import os
import resource
import shutil
from itertools import count
from pathlib import Path

import pytest

from tests.unit.patching.kill.children import (
    FINISHED,
    REFUSED,
    applying,
    check_both_ways,
    count_calls,
    in_child,
    start_from,
)
from tests.unit.patching.trees import look
from vllm_av.patching.install import apply, revert
from vllm_av.patching.series import Series
from vllm_av.patching.tree import Tree, find_tree


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
    pristine = start_from(site, {"apply": None, "revert": series, "upgrade": old}[what])
    action = revert if what == "revert" else applying(series)
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

            count_calls(number, fail)
            action(tree)

        end = in_child(run)
        if end == FINISHED:
            assert number > 20
            return
        assert end == REFUSED
        check_both_ways(tree, base / "spare", series, pristine)


@pytest.mark.parametrize("limit", [0, 10, 300, 1000])
def test_no_room(site: Path, pair: tuple[Series, Series], limit: int) -> None:
    series, _ = pair
    before = look(site)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        apply(find_tree(site), series)

    assert in_child(run) == REFUSED
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

    assert in_child(run) == REFUSED
    assert look(site) == before
