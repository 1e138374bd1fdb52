"""The tests that go with the patches to vLLM, run as in vLLM's own suite: without this package.

On the patched vLLM all pass. Of each patch alone, on the pristine vLLM with what it requires, as
many pass as its data says, and without it as many fail.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.contract import flashinfer_python, swapped
from tests.contract.vllm_source import NEWEST_OFTEN, plain_environment, tree_of
from vllm_av.patching.mail import Patch
from vllm_av.patching.needs import applied, closure
from vllm_av.patching.series import entries, read_series, series_root, versions
from vllm_av.patching.tree import wheel_source
from vllm_av.patching.upstream import TESTS, UPSTREAM, read_beside, sendable
from vllm_av.patching.wheels import pinned_wheel

# Seconds on an idle machine, minutes beside others' work.
pytestmark = pytest.mark.timeout(1800)

TESTS_FOLDER = series_root() / UPSTREAM / TESTS
NEWEST = versions(series_root())[-1]
UNFIT = {
    # XPress, which it does not have.
    ("0.32.0", "v1/spec_decode/test_adaptive_verification_methods.py"),
    # The KDA metadata of ROCm, which take no other way there with adaptive verification.
    ("0.32.0", "v1/spec_decode/test_adaptive_verification_notices.py"),
}
"""Tests that name what an older vLLM does not have."""


def _run(version: str, paths: Iterable[str], folder: Path) -> Mapping[str, Mapping[str, int]]:
    """Test file -> how many of its tests had which outcome, in one process.

    Args:
        folder: goes on ``PYTHONPATH``, and takes the report.
    """
    environment = tree_of(version).parents[3]
    report = folder / "report.xml"
    done = subprocess.run(
        [
            str(environment / "bin/python"),
            *("-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={TESTS_FOLDER}"),
            *("--continue-on-collection-errors", "-p", "no:cacheprovider"),
            *("-o", "junit_family=xunit1", f"--junit-xml={report}"),
            *paths,
        ],
        cwd=TESTS_FOLDER,
        env={
            **plain_environment(),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(folder), str(flashinfer_python.folder())]),
            "VLLM_CACHE_ROOT": str(environment / "cache"),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_PLUGINS": "",
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode in (0, 1, 2), done.stdout[-4000:] + done.stderr[-4000:]
    found: dict[str, dict[str, int]] = {path: {} for path in paths}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        outcome = min(kinds, default="passed")
        of = found[case.attrib.get("file") or f"{case.attrib['name'].replace('.', '/')}.py"]
        of[outcome] = of.get(outcome, 0) + 1
    return found


def _starts_processes(path: str) -> bool:
    return b"\nimport subprocess\n" in (TESTS_FOLDER / path).read_bytes()


def _beside(version: str, alone: bool) -> dict[str, list[str]]:
    """Patch of that version's series -> its tests; without those that take a minute."""
    found = {}
    listed = entries(series_root() / version)
    for name in (name for name in sendable(series_root()) if name in listed):
        tests = list(read_beside(series_root(), name).tests)
        if any((version, path) in UNFIT for path in tests):
            continue
        if alone or not any(map(_starts_processes, tests)):
            found[name] = tests
    return found


def _check(version: str, tests: Mapping[str, list[str]], folder: Path) -> None:
    outcomes = _run(version, [path for paths in tests.values() for path in paths], folder)
    for name, paths in tests.items():
        passed = sum(outcomes[path].pop("passed", 0) for path in paths)
        assert not any(outcomes[path] for path in paths), (name, outcomes)
        if version == NEWEST:
            assert passed == read_beside(series_root(), name).passed, name


@pytest.mark.parametrize("version", NEWEST_OFTEN)
def test_they_pass_on_the_patched_vllm(version: str, tmp_path: Path) -> None:
    _check(version, _beside(version, alone=False), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("version", versions(series_root()))
def test_those_that_start_processes_pass_too(version: str, tmp_path: Path) -> None:
    quick = _beside(version, alone=False)
    tests = {
        name: paths for name, paths in _beside(version, alone=True).items() if name not in quick
    }
    assert tests
    _check(version, tests, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", sendable(series_root()))
def test_each_fails_without_its_patch_alone(name: str, tmp_path: Path) -> None:
    series = read_series(series_root(), NEWEST)
    source = wheel_source(pinned_wheel(NEWEST))
    (patch,) = (one for one in series.patches if one.name == name)
    needed = closure(series.patches, patch)
    first = [one for one in series.patches if one.name in needed]
    beside = read_beside(series_root(), name)
    pristine = {diff.path: source.read(diff.path) for one in series.patches for diff in one.diffs}

    def outcomes(patches: list[Patch], where: str) -> list[Mapping[str, int]]:
        folder = swapped.write(tmp_path / where, applied(patches, pristine))
        return list(_run(NEWEST, beside.tests, folder).values())

    having = outcomes([*first, patch], "with")
    assert sum(each.get("passed", 0) for each in having) == beside.passed, having
    assert all({*each} == {"passed"} for each in having), having
    lacking = outcomes(first, "without")
    passed = sum(each.get("passed", 0) for each in lacking)
    # A file that cannot even be imported is one error, whatever it holds.
    assert beside.passed - passed == beside.failed_without, lacking
    assert all(each.get("failure") or each.get("error") for each in lacking), lacking
