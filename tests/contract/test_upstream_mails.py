"""The mails for vLLM, taken by ``git am`` on the files of the pinned wheel."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_av.patching.needs import applied, closure
from vllm_av.patching.series import Series, read_series, series_root, versions
from vllm_av.patching.tree import Source, wheel_source
from vllm_av.patching.upstream import TESTS, UPSTREAM
from vllm_av.patching.wheels import pinned_wheel

# Hundreds of megabytes, once in the life of a machine.
pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).parents[2]
VERSION = versions(series_root())[-1]


@pytest.fixture(scope="module")
def source() -> Source:
    return wheel_source(pinned_wheel(VERSION))


@pytest.fixture(scope="module")
def series() -> Series:
    return read_series(series_root(), VERSION)


def _export(to: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "vllm_av", "patch", "export", "--json"]
    done = subprocess.run(
        [*command, f"--upstream={to}", *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


Mails = list[dict[str, Any]]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mails")


@pytest.fixture(scope="module")
def mails(out: Path) -> Mails:
    """Every mail, written to ``out``."""
    found: Mails = _export(out)["mails"]
    return found


class _Checkout:
    """A repository with the pristine files that the series touches, at the tag ``pristine``."""

    def __init__(self, folder: Path, source: Source, series: Series) -> None:
        self.folder = folder
        identity = {f"GIT_COMMITTER_{what}": "test@example.invalid" for what in ("NAME", "EMAIL")}
        self.environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null"}
        touched = {diff.path for patch in series.patches for diff in patch.diffs}
        self.pristine = {path: source.read(path) for path in touched}
        for path, content in self.pristine.items():
            if content is not None:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "pristine", "--author=a <a@example.invalid>")
        self.git("tag", "pristine")

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "core.autocrlf=false", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, env=self.environment)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout.decode()

    def read(self, path: str) -> bytes | None:
        file = self.folder / path
        return file.read_bytes() if file.is_file() else None


def test_git_takes_each_mail_after_those_it_needs(
    out: Path, mails: Mails, source: Source, series: Series, tmp_path: Path
) -> None:
    assert [mail["patch"] for mail in mails] == [patch.name for patch in series.patches]
    checkout = _Checkout(tmp_path, source, series)
    by_name = {patch.name: patch for patch in series.patches}
    for mail in mails:
        patch = by_name[mail["patch"]]
        needed = closure(series.patches, patch)
        first = [one for one in series.patches if one.name in needed]
        assert [name[5:] for name in mail["needs"]] == [one.name.partition("/")[2] for one in first]
        checkout.git("checkout", "-q", "-B", "work", "pristine")
        for name in [*mail["needs"], mail["file"]]:
            checkout.git("am", "--keep-non-patch", "--keep-cr", str(out / name))
        wanted = applied([*first, patch], checkout.pristine)
        for path, content in wanted.items():
            assert checkout.read(path) == content, (mail["file"], path)
            if content is not None and path.endswith(".py"):
                compile(content, path, "exec", dont_inherit=True)
        for path in mail["tests"]:
            test = series_root() / UPSTREAM / TESTS / path.removeprefix(f"{TESTS}/")
            assert checkout.read(path) == test.read_bytes()
        title, _, body = checkout.git("log", "-1", "--format=%s%n%B").partition("\n")
        assert title == patch.subject == mail["title"]
        headings = [line for line in ("Purpose", "Test Plan", "Test Result") if line in body]
        assert len(headings) == 3
        ours = {"Signed-off-by", "Upstream-Status", "Removal", "Requires", "vllm_av"}
        assert not [word for word in ours if word in body]


def test_all_of_them_together_make_the_series(
    out: Path, mails: Mails, source: Source, series: Series, tmp_path: Path
) -> None:
    checkout = _Checkout(tmp_path, source, series)
    checkout.git(
        "am", "--keep-non-patch", "--keep-cr", *(str(out / mail["file"]) for mail in mails)
    )
    for path, content in applied(series.patches, checkout.pristine).items():
        assert checkout.read(path) == content, path


def test_the_same_again_changes_no_byte_and_one_alone_is_the_same_mail(
    out: Path, mails: Mails, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(before) == len(mails) + 1
    assert _export(out)["written"] == []
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    last = max(mails, key=lambda mail: len(mail["needs"]))
    alone = _export(tmp_path, "--patch", last["patch"])["mails"]
    assert len(alone) == 1 + len(last["needs"])
    for mail, file in zip(alone, [*last["needs"], last["file"]], strict=True):
        assert (tmp_path / mail["file"]).read_bytes() == before[file]
