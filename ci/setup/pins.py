"""Read ``requirements.lock``; say what of it is installed in an environment."""

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from vllm_av.errors import Code, SetupError

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)")


def read_pins(lock: Path) -> dict[str, str]:
    """Name (normal form) -> version.

    Raises:
        SetupError: ``AV-SETUP-LOCK`` for a line that is neither a comment nor ``name==version``,
            and for a lock without torch, which is installed by itself.
    """
    pins = {}
    text = lock.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        pin = _PIN.fullmatch(entry)
        if pin is None:
            raise _malformed(f"{lock.name}:{number}: {entry!r}", "name==version, one a line")
        pins[normal(pin[1])] = pin[2]
    if "torch" not in pins:
        raise _malformed(f"{lock.name} names no torch", "a version of it, as of everything else")
    return pins


def _malformed(given: str, allowed: str) -> SetupError:
    fix = "take the file as it was committed (`git checkout requirements.lock`), or `make lock`"
    return SetupError(Code.SETUP_LOCK, given, allowed, fix)


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(site: Path) -> dict[str, str]:
    """Name (normal form) -> version of every whole distribution under ``site``."""
    found = {}
    for info in site.glob("*.dist-info"):
        name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        if is_whole(info):
            found[normal(name)] = version
    return found


def is_whole(info: Path) -> bool:
    """Whether pip finished this distribution: it writes INSTALLER after all the files."""
    return (info / "INSTALLER").is_file() and (info / "METADATA").is_file()


def sweep(site: Path, names: Collection[str]) -> list[str]:
    """Remove what a killed pip left: half-installed metadata, and old files it had set aside.

    Without the metadata pip sees the distribution as missing and installs it anew, over the rest.

    Args:
        site: the folder that pip installs into.
        names: the distributions (normal form) that set-up installs; no other is touched.

    Returns:
        The names of what was removed.
    """
    leftovers = [path for path in site.glob("~*") if path.is_dir()]
    for info in site.glob("*.dist-info"):
        name = info.name.removesuffix(".dist-info").rpartition("-")[0]
        if normal(name) in names and not is_whole(info):
            leftovers.append(info)
    for path in leftovers:
        shutil.rmtree(path)
    return sorted(path.name for path in leftovers)
