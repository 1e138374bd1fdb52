"""What the machine lacks is said in one line, before anything is written."""

import sys
from pathlib import Path

import pytest

from ci.setup import machine
from ci.setup.place import Place
from vllm_av.errors import Code, SetupError


def _fake(folder: Path, name: str, body: str) -> str:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return str(file)


def test_this_machine_is_fit(tmp_path: Path) -> None:
    machine.check_machine(Place(tmp_path, sys.executable))


@pytest.mark.parametrize(("system", "processor"), [("darwin", "arm64"), ("linux", "aarch64")])
def test_another_platform(system: str, processor: str) -> None:
    with pytest.raises(SetupError, match="x86_64") as caught:
        machine._check_platform(system, processor)
    assert caught.value.code is Code.SETUP_MACHINE


def test_a_python_without_the_venv_module(tmp_path: Path) -> None:
    python = _fake(tmp_path, "python3.11", "exit 1")
    with pytest.raises(SetupError, match=r"python3\.11-venv"):
        machine._check_venv_module(python)


def test_no_compiler_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="tried icx, cc, gcc, clang"):
        machine._check_compiler("icx -O2")


def test_a_compiler_that_cannot_compile_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _fake(tmp_path, "cc", "exit 1")
    with pytest.raises(SetupError, match="libc6-dev"):
        machine._check_compiler(None)
    _fake(tmp_path, "gcc", "exit 0")
    machine._check_compiler(None)


def test_too_little_disk() -> None:
    with pytest.raises(SetupError, match=r"2\.5 GiB of disk are free"):
        machine._check_disk(int(2.5 * 2**30))
    machine._check_disk(machine.FREE_GIB * 2**30)


def test_an_environment_that_exists_needs_no_more_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, sys.executable)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 0}))
    with pytest.raises(SetupError, match="disk"):
        machine.check_machine(place)
    place.stamps.mkdir(parents=True)
    machine.check_machine(place)
