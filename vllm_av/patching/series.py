"""A series: the ordered list of patches for one vLLM version, as shipped.

Layout: ``<root>/<vllm version>/series`` names ``group/name.patch`` line by line; the files lie
beside it, as do ``wheel.toml`` (:mod:`vllm_av.patching.wheels`) and ``tested.toml``
(:mod:`vllm_av.patching.matrix`). Rule: every patch is listed and everything listed exists
(:func:`stray`).
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import vllm_av
from vllm_av.errors import Code, PatchError
from vllm_av.patching.diff import FileDiff, apply_diff, malformed, render_diff
from vllm_av.patching.mail import Patch, compose, parse_patch
from vllm_av.patching.script import Block, tidy
from vllm_av.patching.tree import GROUPS
from vllm_av.patching.version import key_of

PACKAGED = "_patches"
"""Where the wheel of vllm_av carries the series, below the package."""
PIN = "wheel.toml"
"""Which pristine wheel a series is checked against."""
TESTED = "tested.toml"
"""What was tested of it, and where (:mod:`vllm_av.patching.matrix`)."""

_ENTRY = re.compile(rf"({'|'.join(GROUPS)})/[A-Za-z0-9._-]+\.patch")

Files = dict[str, bytes | None]
"""Path below site-packages -> content; None: there is no such file."""


@dataclass(frozen=True)
class Series:
    """Patches in their order. ``folder`` is where they were read from."""

    version: str
    folder: Path
    patches: tuple[Patch, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in order of their first patch."""
        return tuple(dict.fromkeys(group_of(patch) for patch in self.patches))

    def only(self, groups: Collection[str]) -> "Series":
        """The same series with the patches of ``groups`` alone."""
        kept = tuple(patch for patch in self.patches if group_of(patch) in groups)
        return Series(self.version, self.folder, kept)

    @property
    def digest(self) -> str:
        """sha256 over names and texts: two series that do the same have the same one."""
        total = hashlib.sha256()
        for patch in self.patches:
            total.update(f"{patch.name}\0{len(patch.text)}\0".encode() + patch.text)
        return total.hexdigest()


@dataclass(frozen=True)
class Step:
    """One patch applied: its files before and after, and the edit scripts between."""

    patch: Patch
    before: Files
    after: Files
    scripts: Mapping[str, list[Block]]

    def render(self) -> Patch:
        """The patch written again from what it does, in git's format."""
        return compose(self.patch.name, self.patch.head, [text for _, text in self.parts()])

    def parts(self) -> Iterator[tuple[FileDiff, bytes]]:
        """Each file's change, with its text in normal form."""
        for diff in sorted(self.patch.diffs, key=lambda diff: diff.path):
            old, new = self.before[diff.path], self.after[diff.path]
            script = tidy(old or b"", new or b"", self.scripts[diff.path])
            yield diff, render_diff(diff.path, old, new, script, diff.old_mode, diff.new_mode)


def group_of(patch: Patch) -> str:
    """The group that a patch belongs to."""
    return patch.name.partition("/")[0]


def series_root() -> Path:
    """The folder with one series a version: in the package, or beside it in a checkout.

    Raises:
        PatchError: AV-PATCH-NO-SERIES, where neither exists.
    """
    package = Path(vllm_av.__file__).parent
    for root in (package / PACKAGED, package.parent / "patches"):
        if root.is_dir():
            return root
    raise PatchError(
        Code.PATCH_NO_SERIES,
        f"no patches lie beside {package}",
        "an installed vllm_av carries them",
        "install vllm_av again",
    )


def versions(root: Path) -> list[str]:
    """The vLLM versions that ``root`` has a series for, oldest first."""
    return sorted((path.parent.name for path in root.glob("*/series")), key=key_of)


def series_folder(root: Path, version: str) -> Path:
    """Where the series for a vLLM version lies; ``0.32.0+cpu`` is served by ``0.32.0``.

    Raises:
        PatchError: AV-PATCH-NO-SERIES.
    """
    for candidate in (version, version.partition("+")[0]):
        if (root / candidate / "series").is_file():
            return root / candidate
    raise PatchError(
        Code.PATCH_NO_SERIES,
        f"no series for vLLM {version}",
        f"there is one for: {', '.join(versions(root)) or 'no version'}",
        "install one of these versions of vLLM, or another version of vllm_av",
    )


def entries(folder: Path) -> list[str]:
    """The names listed in ``series``, in order.

    Raises:
        PatchError: AV-PATCH-SERIES, on a line that is no patch name or that comes twice.
    """
    found: list[str] = []
    try:
        listing = (folder / "series").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise malformed(f"{folder / 'series'} is no text in UTF-8 that can be read") from None
    for line in listing.splitlines():
        name = line.partition("#")[0].strip()
        if not name:
            continue
        refuse_bad_name(name)
        if name in found:
            raise malformed(f"series lists {name} twice")
        found.append(name)
    return found


def refuse_bad_name(name: str) -> None:
    """Raise where a patch may not be called that.

    Raises:
        PatchError: AV-PATCH-SERIES.
    """
    if not _ENTRY.fullmatch(name):
        raise malformed(f"{name!r} is no patch name: {' or '.join(GROUPS)}, slash, name.patch")


def stray(folder: Path) -> list[str]:
    """Files beside the series that it does not list."""
    listed = {"series", PIN, TESTED, *entries(folder)}
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(set(files) - listed)


def read_series(root: Path, version: str) -> Series:
    """The series for an installed vLLM version.

    Raises:
        PatchError: AV-PATCH-NO-SERIES, AV-PATCH-SERIES.
    """
    folder = series_folder(root, version)
    patches = []
    for name in entries(folder):
        try:
            text = (folder / name).read_bytes()
        except FileNotFoundError:
            raise malformed(f"series lists {name}, which does not exist") from None
        except OSError as error:
            raise malformed(f"{name} cannot be read ({error.strerror})") from None
        patches.append(parse_patch(name, text))
    return Series(folder.name, folder, tuple(patches))


def apply_patch(patch: Patch, files: Files) -> Step:
    """Apply one patch in memory. ``files`` holds every path that it touches; it is not changed.

    Raises:
        PatchError: AV-PATCH-CONFLICT, naming the patch, the file, and the line.
    """
    before: Files = {}
    after: Files = {}
    scripts = {}
    for diff in patch.diffs:
        before[diff.path] = files[diff.path]
        try:
            after[diff.path], scripts[diff.path] = apply_diff(diff, files[diff.path])
        except PatchError as error:
            raise PatchError(
                error.code, f"{patch.name}: {error.given}", error.allowed, error.fix
            ) from None
    return Step(patch, before, after, scripts)
