"""Status says in one word how a tree is, and only reads."""

import os
import shutil
from pathlib import Path

import pytest

from tests.unit.patching.trees import FIRST, SECOND, THIRD, install, look, write_series
from vllm_av import __version__
from vllm_av.errors import PatchError
from vllm_av.patching import status as status_module
from vllm_av.patching.install import apply
from vllm_av.patching.series import Series
from vllm_av.patching.state import ORIGINALS
from vllm_av.patching.status import State, Status, status
from vllm_av.patching.tree import Tree


@pytest.fixture(autouse=True)
def _our_series(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "series_root", lambda: root)


def _status(site: Path) -> Status:
    before = look(site)
    found = status(site)
    assert look(site) == before
    return found


def test_pristine_and_applied(tree: Tree, series: Series) -> None:
    assert _status(tree.site).state is State.PRISTINE
    apply(tree, series)
    found = _status(tree.site)
    assert found.state is State.APPLIED
    assert found.patches == ("cpu/step-0.patch", "cpu/step-1.patch")
    assert set(found.files) == {*FIRST, *SECOND}
    assert found.applied_by == __version__
    assert found.applied_at is not None
    assert found.applied_at.endswith("+00:00")


def test_outdated(tree: Tree, series: Series, root: Path) -> None:
    apply(tree, series)
    write_series(root, FIRST, SECOND, THIRD)
    assert _status(tree.site).state is State.OUTDATED


def test_edited_before_and_after(tree: Tree, series: Series) -> None:
    edited = tree.site / "vllm/config.py"
    kept = edited.read_bytes()
    edited.write_bytes(b"mine = 1\n")
    found = _status(tree.site)
    assert (found.state, found.files) == (State.EDITED, ("vllm/config.py",))
    assert "undo that edit, or run `pip install" in found.line
    edited.unlink()
    assert "brought it: vllm/config.py (missing);" in _status(tree.site).line
    edited.write_bytes(kept)
    apply(tree, series)
    edited.write_bytes(b"mine = 1\n")
    found = _status(tree.site)
    assert (found.state, found.files) == (State.DRIFTED, ("vllm/config.py",))
    assert "patch export --to DIR`, or drop them; then copy each file from" in found.line
    edited.unlink()
    found = _status(tree.site)
    assert (found.state, found.files) == (State.DRIFTED, ("vllm/config.py",))
    assert "vllm/config.py (missing)" in found.line


def test_following_the_advice_after_an_edit(tree: Tree, series: Series) -> None:
    apply(tree, series)
    whole = look(tree.site)
    for path in ("vllm/config.py", "vllm/worker/runner.py"):
        shutil.copy(tree.state / ORIGINALS / path, tree.site / path)
    (tree.site / "vllm/worker/fresh/new.py").unlink()
    found = _status(tree.site)
    assert found.state is State.INCOMPLETE
    assert set(found.files) == {
        "vllm/config.py",
        "vllm/worker/runner.py",
        "vllm/worker/fresh/new.py",
    }
    assert "fresh/new.py (missing)" in found.line
    assert "run `vllm-av patch apply`" in found.line
    assert apply(tree, series).done == "repaired"
    assert _status(tree.site).state is State.APPLIED
    assert {path: seen[3] for path, seen in look(tree.site).items() if "manifest" not in path} == {
        path: seen[3] for path, seen in whole.items() if "manifest" not in path
    }


def test_a_lost_record(tree: Tree, series: Series) -> None:
    apply(tree, series)
    shutil.rmtree(tree.state)
    found = _status(tree.site)
    assert found.state is State.UNRECORDED
    assert "`vllm-av patch apply` takes it over" in found.line
    assert set(found.files) == {*FIRST, *SECOND}


def test_interrupted(tree: Tree, series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(source: object, target: object) -> None:
        if str(target).endswith("runner.py"):
            raise KeyboardInterrupt
        os.rename(str(source), str(target))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            apply(tree, series)
    found = _status(tree.site)
    assert found.state is State.INTERRUPTED
    assert "run `vllm-av patch apply` or `vllm-av patch revert`" in found.line
    assert apply(tree, series).notes == ("completed an interrupted apply",)


def test_another_vllm_since(tree: Tree, series: Series) -> None:
    apply(tree, series)
    install(tree.site)
    for new in ("vllm/worker/fresh/new.py", "vllm/worker/fresh/__init__.py"):
        (tree.site / new).unlink()
    found = _status(tree.site)
    assert found.state is State.STALE
    assert "installed again" in found.line


def test_no_series_and_no_vllm(tmp_path: Path, series: Series) -> None:
    newer = install(tmp_path / "newer", version="0.40.0")
    found = _status(newer)
    assert found.state is State.UNSUPPORTED
    assert "there is one for 0.32.0" in found.line
    empty = tmp_path / "empty"
    empty.mkdir()
    assert _status(empty).state is State.MISSING


def test_two_vllms_are_a_mistake(site: Path, series: Series) -> None:
    install(site, dist="vllm", version="0.33.0")
    with pytest.raises(PatchError, match="several vLLMs"):
        status(site)
