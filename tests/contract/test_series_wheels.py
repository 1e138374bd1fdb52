"""Every series against the pristine wheel that is pinned for it, which pip fetches once."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from vllm_av.patching.mail import Patch
from vllm_av.patching.needs import closure, needs_of
from vllm_av.patching.series import Series, read_series, series_root, versions
from vllm_av.patching.tree import Source, wheel_source
from vllm_av.patching.verify import verify_all
from vllm_av.patching.wheels import pinned_wheel

# Hundreds of megabytes, once in the life of a machine.
pytestmark = pytest.mark.timeout(1800)

VERSIONS = versions(series_root())


@cache
def _source(version: str) -> Source:
    return wheel_source(pinned_wheel(version))


def test_every_series_is_as_it_must_be() -> None:
    reports = verify_all(series_root())
    assert [report.version for report in reports] == VERSIONS
    assert {"0.32.0", "0.33.0"} <= set(VERSIONS)
    for report in reports:
        assert report.problems == ()
        assert {name.partition("/")[0] for name in report.added} == {"core", "cpu"}
        assert all(0 < added < 120 for added in report.added.values())


def test_all_versions_open_the_same_seams() -> None:
    first, *others = (
        [patch.name for patch in read_series(series_root(), version).only({"core"}).patches]
        for version in VERSIONS
    )
    assert others
    assert all(other == first for other in others)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_need_that_is_not_said_is_found(version: str) -> None:
    series = read_series(series_root(), version)
    silent = tuple(_without_requires(patch) for patch in series.patches)
    told = needs_of(Series(version, series.folder, silent), _source(version).read)
    for patch in series.patches:
        if patch.requires:
            (line,) = (line for line in told if line.startswith(f"{patch.name}: "))
            said = set(re.findall(r"\S+/\S+\.patch", line.partition("it needs `Requires: ")[2]))
            # It may say more: what it does not run without, though it applies.
            assert said, line
            assert said <= closure(series.patches, patch), line


def _without_requires(patch: Patch) -> Patch:
    return replace(patch, head=re.sub(rb"\nRequires:.*(\n .*)*", b"", patch.head))


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("version", VERSIONS)
def test_git_takes_each_core_patch_with_what_it_requires(version: str, tmp_path: Path) -> None:
    core = read_series(series_root(), version).only({"core"}).patches
    assert core
    by_name = {patch.name: patch for patch in core}

    def closure(patch: Patch) -> set[str]:
        return {patch.name}.union(*(closure(by_name[name]) for name in patch.requires))

    for number, last in enumerate(core):
        chosen = [patch for patch in core if patch.name in closure(last)]
        folder = tmp_path / str(number)
        folder.mkdir()
        for path in {diff.path for patch in chosen for diff in patch.diffs}:
            content = _source(version).read(path)
            if content is not None:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        for patch in chosen:
            done = subprocess.run(
                ["git", "apply", "-"],
                cwd=folder,
                input=patch.text,
                capture_output=True,
                env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
            )
            assert done.returncode == 0, (patch.name, done.stderr)
            for diff in patch.diffs:
                if diff.path.endswith(".py") and diff.new_mode:
                    compile((folder / diff.path).read_bytes(), diff.path, "exec")
