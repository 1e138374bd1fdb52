"""Export where a series has both groups: what is new in ``core`` goes before ``cpu``."""

from pathlib import Path

import pytest

from tests.unit.patching.trees import (
    FILES,
    FIRST,
    MESSAGE,
    SECOND,
    WHEN,
    install,
    look,
    package,
    patched,
    write_series,
)
from vllm_av.errors import PatchError
from vllm_av.patching.export import Exported, export
from vllm_av.patching.install import apply
from vllm_av.patching.series import Series, entries, read_series
from vllm_av.patching.tree import Tree
from vllm_av.patching.verify import source_at, tree_source, verify

NAMES = ("core/first.patch", "cpu/second.patch")
NEW = ("core/new.patch", MESSAGE.format(title="Do a new thing"))
CONFIG = SECOND["vllm/config.py"]


@pytest.fixture
def both(root: Path) -> Series:
    series = write_series(root, FIRST, SECOND, names=NAMES)
    (series.folder / "series").write_text("# seams\ncore/first.patch\n# CPU\n\ncpu/second.patch\n")
    return series


def _export(tree: Tree, series: Series, **options: object) -> Exported:
    source = options.pop("source", tree_source(tree))
    return export(tree, source, series, None, date=WHEN, **options)  # type: ignore[arg-type]


def test_a_new_core_patch_goes_before_the_cpu_ones(tree: Tree, both: Series) -> None:
    apply(tree, both)
    edited = CONFIG.replace(b"line_12 = 12\n", b"line_12 = 1\nnew = 2\n")
    (tree.site / "vllm/config.py").write_bytes(edited)
    kept = package(tree.site)
    exported = _export(tree, both, new=NEW)
    assert exported.written == ("core/new.patch", "cpu/second.patch", "series")
    assert (both.folder / "series").read_text() == (
        "# seams\ncore/first.patch\ncore/new.patch\n# CPU\n\ncpu/second.patch\n"
    )
    again = read_series(both.folder.parent, both.version)
    assert verify(both.folder.parent, tree_source(tree)).problems == ()
    assert b"-line_12 = 12\n+line_12 = 1\n+new = 2\n" in again.patches[1].text
    # Of the later patch, only numbers and ids moved: one line more above the hunk.
    old, new = both.patches[1].text.splitlines(), again.patches[2].text.splitlines()
    moved = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    assert [(a[:6], b[:6]) for a, b in moved] == [(b"index ", b"index "), (b"@@ -23", b"@@ -24")]
    assert apply(tree, again).done == "upgraded"
    assert package(tree.site) == kept == patched(FIRST, SECOND, {"vllm/config.py": edited})


def test_a_new_cpu_patch_goes_last(tree: Tree, both: Series) -> None:
    apply(tree, both)
    (tree.site / "vllm/config.py").write_bytes(CONFIG.replace(b"line_12", b"line_x"))
    exported = _export(tree, both, new=("cpu/new.patch", NEW[1]))
    assert exported.written == ("cpu/new.patch", "series")
    assert entries(both.folder) == [*NAMES, "cpu/new.patch"]


def test_the_first_core_patch_goes_first(tree: Tree, series: Series) -> None:
    apply(tree, series)
    (tree.site / "vllm/config.py").write_bytes(CONFIG.replace(b"line_12", b"line_x"))
    _export(tree, series, new=NEW)
    assert entries(series.folder) == ["core/new.patch", "cpu/step-0.patch", "cpu/step-1.patch"]
    assert verify(series.folder.parent, tree_source(tree)).problems == ()
    assert apply(tree, read_series(series.folder.parent, series.version)).done == "upgraded"


def test_an_edit_of_the_lines_of_a_later_patch_is_refused(tree: Tree, both: Series) -> None:
    apply(tree, both)
    path = tree.site / "vllm/worker/größe x.py"
    path.write_bytes(path.read_bytes().replace("maß = 3".encode(), b"mass = 3"))
    before = look(both.folder)
    with pytest.raises(PatchError, match=r"x\.py was edited where cpu/second\.patch changes it"):
        _export(tree, both, new=NEW)
    assert look(both.folder) == before
    # In a file of a later patch alone, and in its lines alone.
    assert _export(tree, both).written == ("cpu/second.patch",)


def test_an_edit_goes_into_an_early_patch_past_a_later_one(tree: Tree, both: Series) -> None:
    apply(tree, both)
    (tree.site / "vllm/config.py").write_bytes(CONFIG.replace(b"line_12", b"line_x"))
    assert _export(tree, both, into=NAMES[0]).written == NAMES
    again = read_series(both.folder.parent, both.version)
    assert b"+line_x = 12\n" in again.patches[0].text
    assert verify(both.folder.parent, tree_source(tree)).problems == ()


def test_with_core_alone_applied_the_cpu_patches_follow(tree: Tree, both: Series) -> None:
    apply(tree, both.only({"core"}))
    config = FIRST["vllm/config.py"].replace(b"line_1 = 1\n", b"")
    (tree.site / "vllm/config.py").write_bytes(config)
    exported = _export(tree, both)
    assert exported.written == NAMES
    again = read_series(both.folder.parent, both.version)
    assert verify(both.folder.parent, tree_source(tree)).problems == ()
    assert apply(tree, again.only({"core"})).done == "upgraded"
    assert package(tree.site)["vllm/config.py"] == config
    apply(tree, again)
    assert package(tree.site)["vllm/config.py"] == CONFIG.replace(b"line_1 = 1\n", b"")


def test_with_cpu_alone_applied_edits_cannot_be_told(tree: Tree, root: Path) -> None:
    free = {"vllm/worker/gone.py": b"mine = 1\n"}
    series = write_series(root, FIRST, free, names=NAMES)
    apply(tree, series.only({"cpu"}))
    with pytest.raises(PatchError, match="does not have this series applied"):
        _export(tree, series)


def test_a_file_that_no_patch_had_goes_into_the_new_core_patch(
    tree: Tree, both: Series, tmp_path: Path
) -> None:
    apply(tree, both)
    (tree.site / "vllm/untouched.py").write_bytes(b"mine = 1\n")
    source = source_at(install(tmp_path / "pristine", FILES))
    exported = _export(tree, both, new=NEW, source=source)
    assert exported.written == ("core/new.patch", "series")
    assert verify(both.folder.parent, source).problems == ()
