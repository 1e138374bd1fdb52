"""A wheel of vllm_av, read and put in its place."""

import os
import stat
import zipfile
from pathlib import Path

import pytest

from ci.image.base import Base
from ci.image.refusal import Refusal
from ci.image.wheel import Wheel, place, read_wheel
from vllm_av.patching.tree import record_line

INFO = "vllm_av-1.dist-info"
FILES = {
    "vllm_av/__init__.py": "",
    f"{INFO}/METADATA": "Name: vllm_av\nVersion: 1\n",
    f"{INFO}/entry_points.txt": "[console_scripts]\nvllm-av = vllm_av.cli:main\n",
}


def _wheel(folder: Path, files: dict[str, str], *, record: bool = True) -> Path:
    """Write a wheel whose RECORD is right."""
    folder.mkdir(exist_ok=True)
    lines = [record_line(path, text.encode()) for path, text in files.items()]
    if record:
        files = files | {f"{INFO}/RECORD": "\n".join([*lines, f"{INFO}/RECORD,,", ""])}
    with zipfile.ZipFile(folder / "vllm_av-1-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Base:
    """An environment without anything in it."""
    site = tmp_path / "root/lib/python3.12/site-packages"
    site.mkdir(parents=True)
    (tmp_path / "root/bin").mkdir()
    return Base(tmp_path / "root", site, "vllm", "0.33.0", b"#!/usr/bin/python3", ())


def test_a_whole_wheel_is_read(tmp_path: Path) -> None:
    wheel = read_wheel(_wheel(tmp_path / "wheels", FILES))
    assert (wheel.version, wheel.info) == ("1", INFO)
    assert wheel.files.keys() == FILES.keys() | {f"{INFO}/RECORD"}


@pytest.mark.parametrize(
    "more",
    [
        {"vllm_av/../../above.py": ""},
        {"/etc/passwd": ""},
        {"vllm/__init__.py": ""},
        {"sitecustomize.py": ""},
        {"vllm_av-1.data/scripts/program": ""},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_wheel_that_would_write_elsewhere_is_refused(
    more: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match=r"\[AV-IMAGE-WHEEL\]"):
        read_wheel(_wheel(tmp_path / "wheels", FILES | more))


@pytest.mark.parametrize("lacking", [*FILES][1:])
def test_a_wheel_without_its_metadata_is_refused(lacking: str, tmp_path: Path) -> None:
    files = {path: text for path, text in FILES.items() if path != lacking}
    with pytest.raises(Refusal, match="lacks METADATA, RECORD"):
        read_wheel(_wheel(tmp_path / "wheels", files))
    with pytest.raises(Refusal, match="lacks METADATA, RECORD"):
        read_wheel(_wheel(tmp_path / "wheels", FILES, record=False))


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vllm_av-1-py3-none-any.whl").write_bytes(b"no archive")
    with pytest.raises(Refusal, match="cannot be read"):
        read_wheel(tmp_path)


@pytest.mark.parametrize("point", ["vllm_av.cli", "vllm_av.cli:main; evil", "a b:main"])
def test_a_command_that_is_no_function_is_refused(point: str, base: Base, tmp_path: Path) -> None:
    files = FILES | {f"{INFO}/entry_points.txt": f"[console_scripts]\nvllm-av = {point}\n"}
    wheel = read_wheel(_wheel(tmp_path / "wheels", files))
    with pytest.raises(Refusal, match="its command is "):
        place(wheel, base, 0)
    assert os.listdir(base.site) == []


def test_modes_are_an_installers_whatever_the_umask(base: Base, tmp_path: Path) -> None:
    wheel = read_wheel(_wheel(tmp_path / "wheels", FILES))
    before = os.umask(0o077)
    try:
        done, made = place(wheel, base, 1000)
    finally:
        os.umask(before)
    assert done == "installed"
    assert made == [base.site / "vllm_av", base.programs / "vllm-av", base.site / INFO]
    modes = {
        path.relative_to(base.root).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for top in made
        for path in (top, *top.rglob("*"))
    }
    assert modes.pop("bin/vllm-av") == 0o755
    assert {mode for path, mode in modes.items() if (base.root / path).is_dir()} == {0o755}
    assert {mode for path, mode in modes.items() if (base.root / path).is_file()} == {0o644}
    assert {path.stat().st_mtime for top in made for path in (top, *top.rglob("*"))} == {1000}


def test_where_it_cannot_be_put_nothing_is_left(base: Base, tmp_path: Path) -> None:
    wheel = read_wheel(_wheel(tmp_path / "wheels", FILES))
    base.programs.rmdir()
    with pytest.raises(FileNotFoundError):
        place(wheel, base, 0)
    assert os.listdir(base.site) == []


def _lay(base: Base, wheel: Wheel, *names: str) -> None:
    """Put some files of a wheel where they go, as a run does that is killed."""
    for name, content in wheel.as_installed(base).items():
        if name in names:
            (base.site / name).parent.mkdir(exist_ok=True)
            (base.site / name).write_bytes(content)


COMMAND = "../../../bin/vllm-av"


def test_what_a_killed_run_left_is_taken_away_and_told(base: Base, tmp_path: Path) -> None:
    wheel = read_wheel(_wheel(tmp_path / "wheels", FILES))
    (base.site / ".vllm_av.new").mkdir()
    (base.site / ".vllm_av.new/half").write_text("")
    _lay(base, wheel, "vllm_av/__init__.py", COMMAND)
    done, _ = place(wheel, base, 0)
    assert done == "installed, over what a killed run had left (.vllm_av.new, vllm_av, vllm-av)"
    assert sorted(os.listdir(base.site)) == ["vllm_av", INFO]


@pytest.mark.parametrize("name", ["vllm_av/mine.py", "vllm_av/__init__.py", COMMAND, f"{INFO}/x"])
@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_of_somebody_else_is_refused_and_kept(
    name: str, kind: str, base: Base, tmp_path: Path
) -> None:
    wheel = read_wheel(_wheel(tmp_path / "wheels", FILES))
    _lay(base, wheel, "vllm_av/__init__.py")
    path = Path(os.path.normpath(base.site / name))
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(tmp_path)
    elif kind == "folder":
        path.mkdir()
        (path / "mine").write_text("mine")
    else:
        path.write_text("mine")
    before = {each: each.lstat().st_mtime_ns for each in base.root.rglob("*")}
    with pytest.raises(Refusal, match=r"\[AV-IMAGE-BASE\] \S* is in the way, and it is not of"):
        place(wheel, base, 0)
    assert {each: each.lstat().st_mtime_ns for each in base.root.rglob("*")} == before


def test_a_link_in_place_of_the_package_is_not_followed(base: Base, tmp_path: Path) -> None:
    wheel = read_wheel(_wheel(tmp_path / "wheels", FILES))
    (tmp_path / "elsewhere").mkdir()
    (base.site / "vllm_av").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refusal, match="is in the way"):
        place(wheel, base, 0)
    assert (tmp_path / "elsewhere").is_dir()
