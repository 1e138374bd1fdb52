"""Killed, and then somebody edits the tree or installs vLLM again."""

import shutil
from pathlib import Path

import pytest

from tests.unit.patching.kill.children import (
    START,
    WHOLE,
    Action,
    applying,
    killed_at_each_operation,
    start_from,
)
from tests.unit.patching.trees import install, look, package
from vllm_av.errors import Code, PatchError
from vllm_av.patching.install import revert
from vllm_av.patching.series import Series
from vllm_av.patching.status import State, status
from vllm_av.patching.tree import Tree, find_tree


def test_edited_between_the_kill_and_the_next_command(
    site: Path, base: Path, pair: tuple[Series, Series]
) -> None:
    series, _ = pair
    for tree in killed_at_each_operation(site, base / "work", applying(series)):
        if package(tree.site) not in WHOLE:
            break
    (tree.site / "vllm/config.py").write_bytes(b"mine = 1\n")
    before = look(tree.site)
    for action in (revert, applying(series)):
        with pytest.raises(PatchError, match=r"interrupted and then vllm/config\.py") as caught:
            action(tree)
        assert caught.value.code is Code.PATCH_STATE
        assert look(tree.site) == before


def _halfway(site: Path, work: Path, action: Action) -> Tree:
    """The tree after a kill that left it neither here nor there, a new file among the rest."""
    for tree in killed_at_each_operation(site, work, action):
        if package(tree.site) not in WHOLE and (tree.site / "vllm/worker/fresh/new.py").exists():
            return tree
    raise AssertionError


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
@pytest.mark.parametrize("what", ["apply", "upgrade"])
def test_installed_again_between_the_kill_and_the_next_command(
    site: Path, base: Path, pair: tuple[Series, Series], what: str, version: str
) -> None:
    series, old = pair
    start_from(site, {"apply": None, "upgrade": old}[what])
    tree = _halfway(site, base / "work", applying(series))
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
