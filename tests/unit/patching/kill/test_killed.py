"""Killed at every file operation: never half applied in silence."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.patching.kill.children import (
    WHOLE,
    applying,
    check_both_ways,
    killed_at_each_operation,
    start_from,
)
from tests.unit.patching.trees import look, package
from vllm_av.errors import PatchError
from vllm_av.patching.install import apply, revert
from vllm_av.patching.series import Series
from vllm_av.patching.status import State
from vllm_av.patching.tree import Tree


@pytest.mark.parametrize("what", ["apply", "revert", "upgrade"])
def test_killed_anywhere(site: Path, base: Path, pair: tuple[Series, Series], what: str) -> None:
    series, old = pair
    pristine = start_from(site, {"apply": None, "revert": series, "upgrade": old}[what])
    action = revert if what == "revert" else applying(series)
    states = [
        check_both_ways(tree, base / "spare", series, pristine)
        for tree in killed_at_each_operation(site, base / "work", action)
    ]
    assert State.INTERRUPTED in states


def test_killed_anywhere_while_ending_what_was_killed(
    site: Path, base: Path, pair: tuple[Series, Series]
) -> None:
    series, _ = pair
    pristine = look(site)
    halfway = base / "halfway"
    for tree in killed_at_each_operation(site, base / "first", applying(series)):
        if package(tree.site) not in WHOLE:
            shutil.copytree(tree.site, halfway, symlinks=True)
            break
    for tree in killed_at_each_operation(halfway, base / "work", revert):
        check_both_ways(tree, base / "spare", series, pristine)


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

    for tree in killed_at_each_operation(site, base / "work", run):
        check_both_ways(tree, base / "spare", series, pristine)
