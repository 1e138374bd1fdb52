"""The patch series against the vLLM that is installed here, whose own files are never written."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_av.patching.install import apply, revert, select
from vllm_av.patching.mail import AUTHOR
from vllm_av.patching.series import Series, read_series, series_root
from vllm_av.patching.state import load_manifest
from vllm_av.patching.tree import Tree, find_tree
from vllm_av.patching.verify import tree_source, verify

ROOT = Path(__file__).parents[2]
KILL_AT = """
import os, signal, sys
from itertools import count
numbers, at = count(), int(sys.argv.pop(1))
real = os.replace
def replace(source, target):
    if next(numbers) == at:
        os.kill(os.getpid(), signal.SIGKILL)
    real(source, target)
os.replace = replace
from vllm_av.cli.app import main
main()
"""


@pytest.fixture(scope="module")
def here() -> Tree:
    return find_tree()


@pytest.fixture(scope="module")
def series(here: Tree) -> Series:
    return read_series(series_root(), here.version)


@pytest.fixture
def copy(here: Tree, tmp_path: Path) -> Tree:
    """A pristine copy of the installed vLLM without its libraries, sharing no file with it."""
    site = tmp_path / "site"
    leave = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(here.site / "vllm", site / "vllm", ignore=leave)
    shutil.copytree(here.site / here.info, site / here.info)
    manifest = load_manifest(here)
    if manifest:
        shutil.copytree(here.state, site / here.state.name)
        revert(find_tree(site))
    for cached in list(site.rglob("__pycache__")):  # given back by the revert
        shutil.rmtree(cached)
    return find_tree(site)


def _look(tree: Tree) -> dict[str, bytes]:
    return {
        path.relative_to(tree.site).as_posix(): path.read_bytes()
        for path in tree.site.rglob("*")
        if path.is_file()
    }


def _patch(*arguments: str, kill_at: int = -1) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", KILL_AT, str(kill_at), "patch", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def test_the_series_is_as_it_must_be(here: Tree) -> None:
    report = verify(series_root(), tree_source(here))
    assert report.problems == ()
    assert report.added
    assert all(0 < added < 120 for added in report.added.values())


def test_applied_and_taken_back_on_the_real_tree(copy: Tree, series: Series) -> None:
    before = _look(copy)
    outcome = apply(copy, select(series, copy))
    assert outcome.done == "applied"
    changed = {path for path in before if (copy.site / path).read_bytes() != before[path]}
    touched = {diff.path for patch in series.patches for diff in patch.diffs}
    assert changed == (touched & set(before)) | {copy.record_path}
    assert apply(copy, select(series, copy)).done == "already applied"
    revert(copy)
    assert _look(copy) == before


def test_killed_in_the_middle_of_the_real_series(copy: Tree, series: Series) -> None:
    before = _look(copy)
    site = ("--site", str(copy.site))
    renames = len({diff.path for patch in series.patches for diff in patch.diffs}) + 3
    for at in range(0, renames, 3):
        assert _patch("apply", *site, kill_at=at).returncode == -signal.SIGKILL
        state = json.loads(_patch("status", *site, "--json").stdout)["state"]
        assert state == ("pristine" if at == 0 else "interrupted")
        verb = "apply" if at % 2 else "revert"
        assert _patch(verb, *site).returncode == 0
        assert _patch("revert", *site).returncode == 0
        assert _look(copy) == before


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_git_takes_each_patch_and_makes_the_same_of_the_tree(
    copy: Tree, series: Series, tmp_path: Path
) -> None:
    folder = tmp_path / "git"
    touched = sorted({diff.path for patch in series.patches for diff in patch.diffs})
    for path in touched:
        if (content := copy.read(path)) is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    identity = {f"GIT_COMMITTER_{what}": "test@example.invalid" for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null"}

    def git(*arguments: str, text: bytes = b"") -> bytes:
        command = ["git", "-c", "core.autocrlf=false", *arguments]
        done = subprocess.run(command, cwd=folder, input=text, capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "pristine", f"--author={AUTHOR}")
    for patch in series.patches:
        # Without these, git would strip vLLM's tags, and the carriage returns of its CRLF files.
        git("am", "-q", "--keep-non-patch", "--keep-cr", text=patch.text)
        assert git("log", "-1", "--format=%an <%ae>%n%s").decode() == f"{AUTHOR}\n{patch.subject}\n"
        # Another cut of the same change may print other hunks, but never another message.
        again = git(
            *["format-patch", "-1", "--stdout", "--zero-commit", "--no-signature", "--full-index"],
            *["--no-stat", "--no-renames", "--subject-prefix=PATCH"],
        )
        assert again.startswith(patch.head), patch.name
    apply(copy, series)
    for path in touched:
        written = (folder / path).read_bytes() if (folder / path).is_file() else None
        assert written == copy.read(path), path
