"""The Python of one wheel, the operators of another build, and a RECORD that is right for both."""

import csv
from pathlib import Path

import pytest

from ci.hybrid.mixture import mix
from ci.setup.place import Place
from tests.unit.hybrid.conftest import OPERATORS
from vllm_av.patching.tree import find_tree


@pytest.fixture
def mixed(there: Place, wheel: Path) -> Place:
    base = Place(there.root, "")
    (there.venv / "bin").mkdir(parents=True)
    (there.venv / "bin/vllm").write_text("the program")
    mix(wheel, base.site, there.site, lambda share: None)
    return there


def test_python_of_the_wheel_and_operators_of_the_build(mixed: Place) -> None:
    package = mixed.site / "vllm"
    assert (package / "__init__.py").read_text() == "0.33"
    names = {path.name for path in package.iterdir()}
    assert names == {"__init__.py", "configs", *(f"{name}.abi3.so" for name in OPERATORS)}
    base = Place(mixed.root, "").site / "vllm"
    for name in OPERATORS:
        assert (package / f"{name}.abi3.so").samefile(base / f"{name}.abi3.so")


def test_the_patch_tool_finds_it_and_every_file_is_as_its_record_says(mixed: Place) -> None:
    tree = find_tree(mixed.site)
    assert (tree.dist, tree.version) == ("vllm", "0.33.0+cpu")
    rows = list(csv.reader((mixed.site / tree.record_path).read_text().splitlines()))
    for path, _, _ in rows:
        content = tree.read(path)
        assert content is not None, path
        assert path == tree.record_path or tree.is_pristine(path, content), path
    files = {
        path.relative_to(mixed.site).as_posix()
        for path in mixed.site.rglob("*")
        if path.is_file() and path.parts[-2] != "vllm_av_patches-vllm"
    }
    assert {path for path, _, _ in rows} == {*files, "../../../bin/vllm"}


def test_what_an_earlier_one_left_is_gone(mixed: Place, wheel: Path) -> None:
    for stale in ("vllm/stale.py", "vllm_av_patches-vllm/manifest.json"):
        path = mixed.site / stale
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    shares: list[float | None] = []
    mix(wheel, Place(mixed.root, "").site, mixed.site, shares.append)
    assert not (mixed.site / "vllm/stale.py").exists()
    assert not (mixed.site / "vllm_av_patches-vllm").exists()
    assert shares == [0.0]
