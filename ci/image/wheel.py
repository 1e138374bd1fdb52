"""Puts the wheel of vllm_av where pip would, and takes it away again.

pip installs into the environment of the Python that runs it, so it could not be tried on a folder
that stands for an image; and it leaves a cache and bytecode that an image should not carry. The
wheel is pure: what an installer does with it is to unpack it, write its command, and RECORD both.
Rule: a file whose sum is not the one in the wheel's RECORD is refused; all of it is there or none.
"""

import base64
import csv
import hashlib
import io
import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import suppress
from dataclasses import dataclass
from email import message_from_string
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath
from typing import Any

from ci.image.base import BACKENDS, Base
from ci.image.refusal import Refusal

STAGED = ".vllm_av.new"
"""Beside the packages, while the wheel is unpacked."""
METADATA = ("METADATA", "RECORD", "entry_points.txt")
"""What is read of a wheel's own."""


@dataclass(frozen=True)
class Wheel:
    """A wheel of vllm_av, read whole."""

    name: str
    sha256: str
    files: dict[str, bytes]

    @property
    def info(self) -> str:
        """Its ``.dist-info`` folder."""
        tops = (_top(path) for path in self.files)
        return next((top for top in tops if top.endswith(".dist-info")), "")

    @property
    def version(self) -> str:
        """Of vllm_av."""
        return str(message_from_string(self._text("METADATA"))["Version"])

    @property
    def metadata(self) -> Distribution:
        """What it says of itself."""
        return _InWheel(self)

    def _text(self, name: str) -> str:
        return self.files[f"{self.info}/{name}"].decode()

    def as_installed(self, base: Base) -> dict[str, bytes]:
        """Every file that it becomes in an environment, by its path from there."""
        record = f"{self.info}/RECORD"
        files = {path: content for path, content in self.files.items() if path != record}
        points = _points(self._text("entry_points.txt"))
        if base.has_cpu_backend:
            points.remove_option(BACKENDS, "cpu")
            files[f"{self.info}/entry_points.txt"] = _rendered(points)
        for name, target in points["console_scripts"].items():
            command = os.path.relpath(base.programs / name, base.site)
            files[command] = _command(base.interpreter, target)
        files[f"{self.info}/INSTALLER"] = b"vllm_av-image\n"
        lines = [*(_line(path, files[path]) for path in sorted(files)), [record, "", ""]]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        return files | {record: text.getvalue().encode()}


class _InWheel(Distribution):
    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel

    def read_text(self, filename: str) -> str | None:
        content = self._wheel.files.get(f"{self._wheel.info}/{filename}")
        return None if content is None else content.decode()

    def locate_file(self, path: Any) -> Any:
        raise NotImplementedError("it is not unpacked")


def read_wheel(folder: Path) -> Wheel:
    """The one wheel in a folder, each file proved by its RECORD.

    Raises:
        Refusal: AV-IMAGE-WHEEL.
    """
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1 or not found[0].name.startswith("vllm_av-"):
        named = ", ".join(path.name for path in found) or "no wheel"
        raise _no_wheel(f"{named} in {folder}")
    content = found[0].read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {name: archive.read(name) for name in archive.namelist() if name[-1] != "/"}
    except zipfile.BadZipFile as error:
        raise _no_wheel(f"{found[0].name} cannot be read ({error})") from error
    wheel = Wheel(found[0].name, hashlib.sha256(content).hexdigest(), files)
    if not files.keys() >= {f"{wheel.info}/{name}" for name in METADATA}:
        raise _no_wheel(f"{wheel.name} lacks {', '.join(METADATA)}, or one of them")
    if {_top(path) for path in files} != {"vllm_av", f"vllm_av-{wheel.version}.dist-info"}:
        raise _no_wheel(f"{wheel.name} holds other packages than vllm_av")
    record = f"{wheel.info}/RECORD"
    listed = {row[0]: row for row in csv.reader(wheel._text("RECORD").splitlines()) if row}
    wrong = sorted(
        path
        for path in files.keys() | listed.keys()
        if path != record
        and (path not in files or listed.get(path) != _line(path, files[path]) or _leaves(path))
    )
    if wrong:
        raise _no_wheel(f"{wheel.name} is not as its RECORD says: {', '.join(wrong[:3])}")
    return wheel


def place(wheel: Wheel, base: Base, mtime: int) -> tuple[str, list[Path]]:
    """Put the wheel in the environment, unless it is there.

    Args:
        mtime: seconds since the epoch, which the files bear.

    Returns:
        What was done, in a word, and what to take away if the rest fails.

    Raises:
        Refusal: AV-IMAGE-BASE, where another vllm_av is there, or what is not of this wheel;
            OSError, with nothing left.
    """
    files = wheel.as_installed(base)
    tops = ["vllm_av", *(path for path in files if path.startswith("../")), wheel.info]
    if (there := base.find("vllm_av")) is not None:
        if there.version == wheel.version and _is_placed(files, base.site):
            return "already there", []
        raise Refusal(
            "AV-IMAGE-BASE",
            f"vllm_av {there.version} is in {base.site}, and it is not {wheel.name}",
            "an image of the vLLM project, without vllm_av",
            "build from that, since an image is made anew and not upgraded",
        )
    staged = base.site / STAGED
    # Not resolved: a link of somebody's is not to be followed.
    made = [Path(os.path.normpath(base.site / top)) for top in tops]
    _refuse_others(wheel, base, files, dict(zip(tops, made, strict=True)))
    left = [path.name for path in (staged, *made) if os.path.lexists(path)]
    try:
        # The metadata, which come last, were not there: a run was killed that had begun.
        remove([staged, *made])
        _write(files, staged, base.site, mtime)
        for top, target in zip(tops, made, strict=True):
            os.rename(staged / _flat(top), target)
        os.rmdir(staged)
    except OSError:
        with suppress(OSError):
            remove([staged, *made])
        raise
    over = f", over what a killed run had left ({', '.join(left)})" if left else ""
    return f"installed{over}", made


def _refuse_others(
    wheel: Wheel, base: Base, files: dict[str, bytes], tops: dict[str, Path]
) -> None:
    """See to it that nothing is in the way but whole files of this wheel."""
    for top, path in tops.items():
        for there in (path, *path.rglob("*")) if path.is_dir() else (path,):
            below = there.relative_to(path).as_posix()
            name = top if below == "." else f"{top}/{below}"
            is_folder = there.is_dir() and not there.is_symlink() and name not in files
            if is_folder or not os.path.lexists(there):
                continue
            if there.is_symlink() or not there.is_file() or there.read_bytes() != files.get(name):
                raise Refusal(
                    "AV-IMAGE-BASE",
                    f"{there} is in the way, and it is not of {wheel.name}",
                    f"nothing but files of that wheel where it goes, in {base.site}",
                    "build from an image of the vLLM project, which has nothing there",
                )


def remove(paths: list[Path]) -> None:
    """Take files and folders away, those that are there."""
    for path in reversed(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def own(path: Path, model: Path, mode: int, mtime: int) -> None:
    """Give a fresh file or folder its mode and time, and the owner of ``model``."""
    facts = model.stat()
    if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.chown(path, facts.st_uid, facts.st_gid)
    path.chmod(mode)
    os.utime(path, (mtime, mtime))


def _write(files: dict[str, bytes], staged: Path, model: Path, mtime: int) -> None:
    for name, content in files.items():
        path = staged / _flat(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        own(path, model, 0o755 if name.startswith("../") else 0o644, mtime)
    for folder in sorted((p for p in staged.rglob("*") if p.is_dir()), reverse=True):
        own(folder, model, 0o755, mtime)


def _is_placed(files: dict[str, bytes], site: Path) -> bool:
    return all(
        (site / path).is_file() and (site / path).read_bytes() == content
        for path, content in files.items()
    )


def _flat(path: str) -> str:
    """Where a file is staged: a command has no folder there."""
    return PurePosixPath(path).name if path.startswith("../") else path


def _leaves(path: str) -> bool:
    return path.startswith("/") or ".." in path.split("/")


def _top(path: str) -> str:
    return path.partition("/")[0]


def _line(path: str, content: bytes) -> list[str]:
    coded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return [path, f"sha256={coded}", str(len(content))]


def _points(text: str) -> ConfigParser:
    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def _rendered(points: ConfigParser) -> bytes:
    def lines() -> Iterator[str]:
        for section in points.sections():
            if options := dict(points[section]):
                yield f"[{section}]"
                yield from (f"{name} = {value}" for name, value in options.items())
                yield ""

    return "\n".join(lines()).encode()


def _command(interpreter: bytes, target: str) -> bytes:
    module, _, function = target.partition(":")
    if not re.fullmatch(r"[\w.]+", module) or not function.isidentifier():
        raise _no_wheel(f"its command is {target!r}")
    program = f"import sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
    return interpreter + b"\n" + program.encode()


def _no_wheel(given: str) -> Refusal:
    return Refusal(
        "AV-IMAGE-WHEEL",
        given,
        "one whole wheel of vllm_av",
        "make it with `make wheel`, which leaves it alone in build/image",
    )
