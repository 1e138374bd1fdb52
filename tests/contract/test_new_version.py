"""A vLLM that does not exist yet: another one's Python, as it is and with changes."""

import hashlib
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_av.patching.newversion import Started, start
from vllm_av.patching.series import read_series, series_root
from vllm_av.patching.tree import wheel_source
from vllm_av.patching.verify import verify
from vllm_av.patching.wheels import pinned_wheel
from vllm_av.seams.contract import missing

# Hundreds of megabytes, once in the life of a machine.
pytestmark = pytest.mark.timeout(1800)

OLD, NEW = "0.33.0", "0.34.0"
CONFLICT = "core/draft-budget-policy.patch"
RENAMED_UNDER = "core/agree-on-confidences.patch"
RENAMED_CALL = "core/check-target-layers.patch"
MANAGER = "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py"

Change = Callable[[str, bytes], bytes]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The series of the newest vLLM, alone, with its wheel in a cache of its own."""
    wheel = pinned_wheel(OLD)
    (tmp_path / "cache" / "wheels").mkdir(parents=True)
    (tmp_path / "cache" / "wheels" / wheel.name).symlink_to(wheel)
    monkeypatch.setenv("AV_CACHE", str(tmp_path / "cache"))
    shutil.copytree(series_root() / OLD, tmp_path / "patches" / OLD)
    return tmp_path / "patches"


def go(root: Path, change: Change) -> tuple[Started, Path]:
    """Make the wheel of the new version, and the series for it."""
    wheel = root.parent / f"vllm-{NEW}-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(pinned_wheel(OLD)) as old, zipfile.ZipFile(wheel, "w") as new:
        for name in old.namelist():
            content = old.read(name) if name.endswith((".py", "/METADATA")) else b""
            if name.endswith("/METADATA"):
                content = content.replace(f"Version: {OLD}".encode(), f"Version: {NEW}".encode())
                name = name.replace(OLD, NEW)
            if content:
                new.writestr(name, change(name, content))
    return start(NEW, root, wheel=wheel, seams=missing), wheel


def test_the_same_vllm_under_another_version(root: Path) -> None:
    found, wheel = go(root, lambda name, content: content)
    assert found.clean
    old, new = (read_series(root, version) for version in (OLD, NEW))
    assert [(patch.name, patch.text) for patch in new.patches] == [
        (patch.name, patch.text) for patch in old.patches
    ]
    assert verify(root, wheel_source(wheel)).problems == ()
    pin = (root / NEW / "wheel.toml").read_text()
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() in pin


def test_lines_that_moved_methods_renamed_and_a_line_changed(root: Path) -> None:
    series = read_series(root, OLD)
    touched = {diff.path for patch in series.patches for diff in patch.diffs}
    (policy,) = (patch for patch in series.patches if patch.name == CONFLICT)
    (diff,) = (diff for diff in policy.diffs if diff.path == MANAGER)
    removed = [line for hunk in diff.hunks for sign, line in hunk.lines if sign == b"-"]
    (line,) = (line for line in removed if b"draft_budget = int(" in line)

    def change(name: str, content: bytes) -> bytes:
        if name in touched:
            content = b"# moved\n" * 7 + content
        if name == MANAGER:
            assert line in content
            content = content.replace(line, line.rstrip(b"\n") + b"  # changed\n")
        content = re.sub(rb"\brecord_confidences\b", b"keep_confidences", content)
        return re.sub(rb"\bget_layers_from_vllm_config\b", b"layers_of", content)

    found, wheel = go(root, change)
    assert not found.clean
    assert [one["patch"] for one in found.conflicts] == [CONFLICT]
    assert {place["file"] for place in found.conflicts[0]["places"]} == {MANAGER}
    assert any(line.decode() in place["old"] for place in found.conflicts[0]["places"])
    assert any("# changed" in place["new"] for place in found.conflicts[0]["places"])
    needing = {patch.name for patch in series.patches if CONFLICT in patch.requires}
    assert needing
    assert needing <= {*found.waiting}
    (under,) = (line for line in found.looks[RENAMED_UNDER] if "keep_confidences" in line)
    assert "were in AdaptiveVerificationManager.record_confidences and are in" in under
    (call,) = found.looks[RENAMED_CALL]
    assert call.startswith("it uses get_layers_from_vllm_config, which has gone (vllm/config/vllm.")
    assert call.endswith("; perhaps it is layers_of now")
    assert {*found.looks} == {RENAMED_UNDER, RENAMED_CALL}
    assert {*found.carried} == {
        patch.name for patch in series.patches if patch.name not in {CONFLICT, *found.waiting}
    }
    # What went over is a series: verify finds nothing but the texts that say what is left.
    report = verify(root, wheel_source(wheel))
    assert {*report.added} == {*found.carried}
    assert report.problems
    assert all(re.match(r"conflicts/.*not listed$", line) for line in report.problems)
    text = (root / NEW / "conflicts" / CONFLICT.replace(".patch", ".conflict.txt")).read_text()
    for said in (CONFLICT, MANAGER, "AdaptiveVerificationManager.get_num_tokens:", *needing):
        assert said in text
