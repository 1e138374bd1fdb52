"""Wheels that are no ordinary files, oddly written versions, and a matrix that cannot be read."""

import os
import sys
from pathlib import Path

import pytest

import ci.matrix
import ci.readme
from vllm_av.errors import Code, PatchError
from vllm_av.patching import tree
from vllm_av.patching.tree import wheel_source
from vllm_av.patching.version import is_release, refuse_no_version


def _refused(wheel: Path, why: str) -> None:
    with pytest.raises(PatchError, match=why) as caught:
        wheel_source(wheel)
    assert caught.value.code is Code.PATCH_NO_VLLM


def test_a_wheel_that_is_no_ordinary_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.whl"
    os.mkfifo(pipe)
    # Without the look this waits for ever; a writer that leaves lets it fail instead.
    writer = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"PK")
    try:
        _refused(pipe, "no ordinary file")
    finally:
        os.close(writer)
    _refused(tmp_path, "no ordinary file")
    _refused(Path("/dev/null"), "no ordinary file")


def test_a_wheel_beyond_all_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "WHEEL_BYTES", 9)
    (tmp_path / "large.whl").write_bytes(b"PK" * 5)
    _refused(tmp_path / "large.whl", "10 bytes, more than 9")


@pytest.mark.parametrize(
    "version",
    ["\u0660.34.0", "\uff10.34.0", "0.032.0", "00.34.0", "0.34.0rc01", "0.34.0.post\u0661"],
)
def test_oddly_written_versions(version: str) -> None:
    assert not is_release(version)
    with pytest.raises(PatchError, match="is no version of vLLM"):
        refuse_no_version(version)


@pytest.mark.parametrize("version", ["0.34.0", "0.0.10", "10.0.0rc2", "0.34.0.post1"])
def test_versions(version: str) -> None:
    assert is_release(version)


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_a_matrix_that_cannot_be_read(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["ci.matrix", *arguments])
    monkeypatch.setattr(ci.readme, "README", tmp_path / "README.md")
    assert ci.matrix.main() == 2
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "README.md").write_text(f"{ci.matrix.BEGIN}{ci.matrix.END}")
    (tmp_path / "patches" / "0.40.0").mkdir(parents=True)
    (tmp_path / "patches" / "0.40.0" / "series").write_text("")
    (tmp_path / "patches" / "0.40.0" / "tested.toml").write_text("where=1\n")
    monkeypatch.setattr(ci.matrix, "PATCHES", tmp_path / "patches")
    assert ci.matrix.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: [AV-PATCH-")
