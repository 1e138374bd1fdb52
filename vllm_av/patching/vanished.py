"""Which names that a carried patch uses does the new vLLM no longer have?

A patch may go over cleanly and call what was renamed: no line clashes, and the engine stops, or a
method is never called again. Rule: only what the old vLLM defines somewhere and the new one nowhere
is told, so that a name of torch or of Python is none.
"""

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path

from vllm_av.patching.carry import brings_of
from vllm_av.patching.names import brought, used
from vllm_av.patching.scopes import scopes_of, text_of
from vllm_av.patching.series import Step
from vllm_av.patching.tree import PACKAGE, Source, damaged, wheel_source

SAME = 0.6
"""From this share of common text on, a new function is taken for an old one renamed."""

_DEFINES = re.compile(
    rb"^[ \t]*(?:async )?(?:def|class) (\w+)"
    rb"|^[ \t]*(?:self|cls)\.(\w+)[ \t]*(?::[^=\n]*)?=(?!=)"
    rb"|^(?: {4})?(\w+)[ \t]*(?::|=(?!=))",
    re.M,
)
"""How the definition of a function, a class, an attribute, a field looks. To parse thousands of
files takes a minute; what remains is parsed."""


@dataclass(frozen=True)
class Wheel:
    """A wheel's files."""

    path: Path
    source: Source

    @classmethod
    def at(cls, path: Path) -> "Wheel":
        """Open one.

        Raises:
            PatchError: AV-PATCH-NO-VLLM.
        """
        return cls(path, wheel_source(path))

    @cached_property
    def sums(self) -> dict[str, int]:
        """The checksum of each Python file, as the archive has it."""
        with damaged(self.path), zipfile.ZipFile(self.path) as archive:
            return {
                info.filename: info.CRC
                for info in archive.infolist()
                if info.filename.startswith(f"{PACKAGE}/") and info.filename.endswith(".py")
            }

    def named_alike(self, old: "Wheel") -> Callable[[str], list[str]]:
        """For a file that has gone: those of the same name that ``old`` does not have."""
        fresh = sorted({*self.sums} - {*old.sums})
        return lambda gone: [path for path in fresh if Path(path).name == Path(gone).name]

    def files(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Files with their contents, read one by one."""
        with damaged(self.path), zipfile.ZipFile(self.path) as archive:
            for path in paths:
                yield path, archive.read(path)


@dataclass(frozen=True)
class Vanished:
    """A name that is no longer there."""

    name: str
    was: str
    """Where it was defined: ``file: Class.name``."""
    perhaps: str
    """What it may be called now; empty: nothing looks like it."""


def vanished(steps: Sequence[Step], old: Wheel, new: Wheel) -> dict[str, list[Vanished]]:
    """Name of a patch -> what it uses, or defines once more, and the new vLLM lacks.

    Args:
        steps: patches on the new vLLM.
    """
    ours: set[str] = set()
    needs: dict[str, set[str]] = {}
    for step in steps:
        mine = brings_of(step)
        # Also what it brings: a method may be meant to stand in for one of vLLM's.
        needs[step.patch.name] = _used(step) - ours | mine
        ours |= mine
    asked = set().union(*needs.values()) if needs else set()
    gone = [path for path, crc in old.sums.items() if new.sums.get(path) != crc]
    missing = asked & set().union(*(_defined(*file) for file in old.files(gone)))
    for path, content in new.files(new.sums if missing else ()):
        missing -= _defined(path, content)
    places = _places(old.files(gone if missing else ()), missing)
    told = {name: _told(name, places[name], old.source, new.source) for name in places}
    found = {
        patch: [told[name] for name in sorted(names) if name in told]
        for patch, names in needs.items()
    }
    return {patch: lines for patch, lines in found.items() if lines}


def _used(step: Step) -> set[str]:
    return {name for path in step.after for name in used(path, step.before[path], step.after[path])}


def _defined(path: str, content: bytes) -> set[str]:
    """The names that a file defines, by the looks of its lines; its own as a module too."""
    words = {word.decode() for found in _DEFINES.findall(content) for word in found if word}
    return {*words, path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")}


def _places(files: Iterable[tuple[str, bytes]], asked: set[str]) -> dict[str, list[str]]:
    """Each of ``asked`` that is defined, with the files that define it."""
    found: dict[str, list[str]] = {}
    for path, content in files:
        if _defined(path, content) & asked:
            for name in brought(path, None, content) & asked:
                found.setdefault(name, []).append(path)
    return found


def _told(name: str, paths: Sequence[str], old: Source, new: Source) -> Vanished:
    path = paths[0]
    before, after = old.read(path), new.read(path)
    full = next((s.name for s in scopes_of(before) if s.name.rpartition(".")[2] == name), name)
    return Vanished(name, f"{path}: {full}", _renamed(full, before, after))


def _renamed(full: str, before: bytes | None, after: bytes | None) -> str:
    """The new function of the same class, or module, whose text is the most like the old one's."""
    text = text_of(before, full)
    if text is None:
        return ""
    known = {one.name for one in scopes_of(before)}
    parent = full.rpartition(".")[0]
    likeness: Mapping[str, float] = {
        one.name: SequenceMatcher(None, text, text_of(after, one.name) or b"").ratio()
        for one in scopes_of(after)
        if one.name not in known and one.name.rpartition(".")[0] == parent and not one.is_class
    }
    best = max(likeness, key=likeness.__getitem__, default="")
    return best if best and likeness[best] >= SAME else ""
