"""Export: a no-op without edits; each edit lands in the patch it belongs to."""

from pathlib import Path

import pytest

from tests.unit.patching.trees import (
    FILES,
    FIRST,
    MESSAGE,
    SECOND,
    THIRD,
    WHEN,
    install,
    look,
    package,
    patched,
    write_series,
)
from vllm_av.errors import Code, PatchError
from vllm_av.patching.export import Exported, export
from vllm_av.patching.install import apply, revert
from vllm_av.patching.mail import faults
from vllm_av.patching.series import Series, read_series
from vllm_av.patching.tree import Tree
from vllm_av.patching.verify import source_at, tree_source, verify

EDIT = FIRST["vllm/worker/runner.py"].replace(b"line_20 = 20", b"line_20 = 200")


def _export(tree: Tree, series: Series, **options: object) -> Exported:
    source = options.pop("source", tree_source(tree))
    return export(tree, source, series, None, date=WHEN, **options)  # type: ignore[arg-type]


@pytest.fixture
def pristine(tmp_path: Path) -> Path:
    return install(tmp_path / "pristine")


def test_without_edits_nothing_is_written(tree: Tree, series: Series, tmp_path: Path) -> None:
    apply(tree, series)
    before = look(series.folder)
    assert _export(tree, series) == Exported(str(series.folder), (), ())
    assert look(series.folder) == before
    elsewhere = tmp_path / "to" / "here"
    export(tree, tree_source(tree), series, elsewhere, date=WHEN)
    assert {name: seen[3] for name, seen in look(elsewhere).items()} == {
        name: seen[3] for name, seen in before.items()
    }


def test_an_edit_goes_into_the_last_patch_of_its_file(tree: Tree, series: Series) -> None:
    apply(tree, series)
    (tree.site / "vllm/worker/runner.py").write_bytes(EDIT)
    config = SECOND["vllm/config.py"].replace(b"line_12 = 12", b"line_12 = 120")
    (tree.site / "vllm/config.py").write_bytes(config)
    exported = _export(tree, series)
    assert exported.edited == ("vllm/config.py", "vllm/worker/runner.py")
    assert exported.written == ("cpu/step-0.patch", "cpu/step-1.patch")
    again = read_series(series.folder.parent, series.version)
    assert b"+line_20 = 200" in again.patches[0].text
    assert b"120" not in again.patches[0].text
    assert b"+line_12 = 120" in again.patches[1].text
    assert [patch.head for patch in again.patches] == [patch.head for patch in series.patches]
    assert verify(series.folder.parent, tree_source(tree)).problems == ()
    # The tree is then what the new series makes of it: apply only records that.
    edited = package(tree.site)
    assert apply(tree, again).done == "upgraded"
    assert package(tree.site) == edited
    revert(tree)
    assert package(tree.site) == FILES


def test_an_edit_that_a_later_patch_would_undo_is_refused(tree: Tree, series: Series) -> None:
    apply(tree, series)
    (tree.site / "vllm/config.py").write_bytes(b"mine = 1\n")
    with pytest.raises(PatchError, match=r"where cpu/step-1\.patch changes it too") as caught:
        _export(tree, series, into="cpu/step-0.patch")
    assert caught.value.code is Code.PATCH_EXPORT


def test_an_edit_without_a_patch_needs_a_name(tree: Tree, series: Series, pristine: Path) -> None:
    apply(tree, series)
    (tree.site / "vllm/untouched.py").write_bytes(b"mine = 1\n")
    (tree.site / "vllm/fresh.py").write_bytes(b"mine = 2\n")
    with pytest.raises(PatchError, match=r"fresh\.py was edited, and no patch changes it"):
        _export(tree, series)
    with pytest.raises(PatchError, match=r"untouched\.py") as caught:
        _export(tree, series, into="cpu/step-0.patch")
    assert caught.value.code is Code.PATCH_NOT_PRISTINE
    source = source_at(pristine)
    _export(tree, series, into="cpu/step-0.patch", source=source)
    again = read_series(series.folder.parent, series.version)
    paths = [diff.path for diff in again.patches[0].diffs]
    assert paths == sorted([*FIRST, "vllm/untouched.py", "vllm/fresh.py"])
    assert verify(series.folder.parent, source).problems == ()
    # Neither file has a stored original; taking the patch back in memory proves them.
    apply(tree, again)
    revert(tree)
    assert package(tree.site) == FILES


def test_a_new_patch(tree: Tree, series: Series, pristine: Path) -> None:
    apply(tree, series)
    for path, content in THIRD.items():
        (tree.site / path).write_bytes(content)
    new = (
        "cpu/third.patch",
        MESSAGE.format(title="Do a third thing") + "Requires: cpu/step-1.patch\n",
    )
    exported = _export(tree, series, new=new)
    assert exported.written == ("cpu/third.patch", "series")
    again = read_series(series.folder.parent, series.version)
    patch = again.patches[-1]
    assert patch.subject == "[CPU] Do a third thing"
    assert patch.trailers == {
        "Why": "something is missing without it",
        "Upstream-Status": "not-sent",
        "Removal": "when vLLM does it itself",
        "Requires": "cpu/step-1.patch",
    }
    assert faults(patch) == []
    assert verify(series.folder.parent, source_at(pristine)).problems == ()
    apply(tree, again)
    assert package(tree.site) == patched(FIRST, SECOND, THIRD)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (("cpu/third.patch", "[CPU] Title\n\nBody\n"), "the trailer Why is missing"),
        (("cpu/third.patch", "[CPU] Größe\n\nBody\n"), "is not plain ASCII"),
        (("third.patch", MESSAGE), "is no patch name"),
        (("cpu/step-1.patch", MESSAGE), "has a patch cpu/step-1.patch already"),
    ],
)
def test_what_a_new_patch_may_not_be(
    tree: Tree, series: Series, new: tuple[str, str], why: str
) -> None:
    apply(tree, series)
    (tree.site / "vllm/config.py").write_bytes(THIRD["vllm/config.py"])
    before = look(series.folder)
    with pytest.raises(PatchError, match=why) as caught:
        _export(tree, series, new=new)
    assert caught.value.code is Code.PATCH_SERIES
    assert look(series.folder) == before


def test_a_new_patch_without_edits_is_refused(tree: Tree, series: Series) -> None:
    apply(tree, series)
    with pytest.raises(PatchError, match="nothing was edited"):
        _export(tree, series, new=("cpu/third.patch", MESSAGE))


def test_a_patch_that_would_be_empty_is_refused(tree: Tree, root: Path, pristine: Path) -> None:
    series = write_series(root, {"vllm/worker/gone.py": b"new = 1\n"})
    apply(tree, series)
    (tree.site / "vllm/worker/gone.py").write_bytes(FILES["vllm/worker/gone.py"])
    with pytest.raises(PatchError, match="would be left without a change"):
        _export(tree, series)


def test_a_tree_without_the_series_is_refused(tree: Tree, series: Series, root: Path) -> None:
    with pytest.raises(PatchError, match="does not have this series applied"):
        _export(tree, series)
    apply(tree, series)
    longer = write_series(root, FIRST, SECOND, THIRD)
    with pytest.raises(PatchError, match="does not have this series applied"):
        _export(tree, longer)


def test_an_installed_series_is_not_written_to(tree: Tree, tmp_path: Path) -> None:
    series = write_series(tmp_path / "vllm_av" / "_patches", FIRST)
    apply(tree, series)
    with pytest.raises(PatchError, match="name a folder with --to"):
        export(tree, tree_source(tree), series, None, date=WHEN)


def test_an_unknown_patch_is_named(tree: Tree, series: Series) -> None:
    apply(tree, series)
    with pytest.raises(PatchError, match=r"applied are: cpu/step-0\.patch, cpu/step-1\.patch"):
        _export(tree, series, into="cpu/nine.patch")


def test_a_long_title_is_folded_and_a_body_may_hold_any_letter(tree: Tree, series: Series) -> None:
    apply(tree, series)
    (tree.site / "vllm/config.py").write_bytes(THIRD["vllm/config.py"])
    title = "A title that is so long that format-patch folds it once it has seen enough of it"
    message = MESSAGE.format(title=title).replace("What", "Größe: what")
    _export(tree, series, new=("cpu/third.patch", message))
    patch = read_series(series.folder.parent, series.version).patches[-1]
    assert patch.subject == f"[CPU] {title}"
    assert b"Content-Type: text/plain; charset=UTF-8\n" in patch.head
    assert max(len(line) for line in patch.head.splitlines()) < 80
