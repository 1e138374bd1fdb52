"""Real processes that use a tree, or only seem to."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.patching.trees import look
from vllm_av.errors import Code, PatchError
from vllm_av.patching.install import apply, revert
from vllm_av.patching.inuse import users_of
from vllm_av.patching.series import Series
from vllm_av.patching.tree import Tree

WAIT = "print('ready', flush=True); input()"
MAP = f"""
import mmap, sys
library = open(sys.argv[1], "rb")
kept = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
{WAIT}
"""

Start = Callable[..., int]


def _may_mount() -> bool:
    if not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that says "ready" and waits; its process id."""
    running: list[subprocess.Popen[str]] = []

    def run(*argv: str, **options: str) -> int:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process.pid

    yield run
    for process in running:
        process.communicate("\n", timeout=30)


def _pids(tree: Tree) -> list[int]:
    return [user.pid for user in users_of(tree)]


def _library(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 4096)
    return str(path)


def _environment(tree: Tree, program: str, text: str) -> Path:
    """``<env>/bin/<program>`` and a python beside it."""
    programs = tree.site.parents[2] / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "python").symlink_to(sys.executable)
    (programs / program).write_text(text)
    return programs


def test_a_mapped_library_of_the_tree(tree: Tree, series: Series, start: Start) -> None:
    library = _library(tree.site / "vllm/_C.abi3.so")
    pid = start(sys.executable, "-c", MAP, library)
    assert _pids(tree) == [pid]
    before = look(tree.site)
    with pytest.raises(
        PatchError, match=rf"used by process {pid} \(python\S* -c .*patch apply` again"
    ) as caught:
        apply(tree, series)
    assert caught.value.code is Code.PATCH_IN_USE
    assert look(tree.site) == before


def test_what_changes_nothing_is_not_refused(tree: Tree, series: Series, start: Start) -> None:
    apply(tree, series)
    library = _library(tree.site / "vllm/_C.abi3.so")
    start(sys.executable, "-c", MAP, library)
    assert apply(tree, series).done == "already applied"
    with pytest.raises(PatchError, match="used by process"):
        revert(tree)


def test_a_library_of_another_tree_or_package(tree: Tree, tmp_path: Path, start: Start) -> None:
    start(sys.executable, "-c", MAP, _library(tmp_path / "other/vllm/_C.abi3.so"))
    start(sys.executable, "-c", MAP, _library(tree.site / "torch/lib/libtorch.so"))
    start(sys.executable, "-c", MAP, _library(tree.site / "vllm_other/_C.so"))
    assert _pids(tree) == []


def test_a_command_line_is_shown_by_what_tells_it_apart(tree: Tree, start: Start) -> None:
    programs = _environment(tree, "vllm", WAIT)
    start(str(programs / "python"), str(programs / "vllm"), "serve", "m" * 99)
    (user,) = users_of(tree)
    assert user.command == f"python vllm serve {'m' * 62} ..."


@pytest.mark.skipif(not _may_mount(), reason="this user may not mount")
def test_another_container_with_a_tree_of_the_same_name(
    tree: Tree, tmp_path: Path, start: Start
) -> None:
    library = _library(tree.site / "vllm/_C.abi3.so")
    other = tmp_path / "other"
    _library(other / "vllm/_C.abi3.so")
    run = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$5"'
    inside = (str(other), str(tree.site), sys.executable, MAP, library)
    start("unshare", "--mount", "sh", "-c", run, "sh", *inside)
    assert _pids(tree) == []
    same = start("unshare", "--mount", sys.executable, "-c", MAP, library)
    assert _pids(tree) == [same]


def test_a_worker_that_renamed_itself(tree: Tree, tmp_path: Path, start: Start) -> None:
    library = _library(tree.site / "torch/lib/libtorch.so")
    other = _library(tmp_path / "other/torch/lib/libtorch.so")
    wanted = start("VLLM::EngineCore", "-c", MAP, library, executable=sys.executable)
    start("VLLM::EngineCore", "-c", MAP, other, executable=sys.executable)
    assert _pids(tree) == [wanted]


def test_vllm_serve_that_has_just_started(tree: Tree, tmp_path: Path, start: Start) -> None:
    programs = _environment(tree, "vllm", WAIT)
    wanted = [
        start(str(programs / "python"), str(programs / "vllm"), "serve", "model"),
        start(str(programs / "python"), "bin/vllm", "serve", cwd=str(programs.parent)),
    ]
    elsewhere = tmp_path / "vllm"
    elsewhere.write_text(WAIT)
    start(sys.executable, str(elsewhere), "serve", "model")
    assert sorted(_pids(tree)) == sorted(wanted)


def test_python_m_vllm(tree: Tree, start: Start) -> None:
    programs = _environment(tree, "other", WAIT)
    module = programs / "vllm" / "__main__.py"
    module.parent.mkdir()
    module.write_text(WAIT)
    module.with_name("__init__.py").touch()
    wanted = start(str(programs / "python"), "-m", "vllm", cwd=str(programs))
    start(sys.executable, "-m", "vllm", cwd=str(programs))
    start(str(programs / "python"), str(programs / "other"))
    assert _pids(tree) == [wanted]
