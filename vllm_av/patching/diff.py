"""One file's part of a git diff: parse, apply, render.

Rule: exact or refused. Every hunk lies where it says, every context line equals the file's, no
fuzz, no offset. Renames, copies, changes of mode, and binary diffs are refused.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_av.errors import Code, PatchError
from vllm_av.patching.script import NO_NEWLINE, Block, hunks, split_lines

NO_BLOB = "0" * 40
NAME_BYTES = 255
REGULAR, EXECUTABLE = 0o100644, 0o100755

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: .*)?\n")
_INDEX = re.compile(rb"index ([0-9a-f]{40})\.\.([0-9a-f]{40})(?: (\d{6}))?\n")
_MODES = {b"100644": REGULAR, b"100755": EXECUTABLE}
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}
_ESCAPES |= {b'"': 34, b"\\": 92}
_LETTERS = {value: letter for letter, value in _ESCAPES.items()}


@dataclass(frozen=True)
class Hunk:
    """``old_start`` and ``new_start`` are git's (one-based, or the line before when empty)."""

    old_start: int
    new_start: int
    lines: tuple[tuple[bytes, bytes], ...]
    """(sign, line) with sign one of ``b" "``, ``b"-"``, ``b"+"``."""


@dataclass(frozen=True)
class FileDiff:
    """A change of one file. ``old_mode`` None: the file is new; ``new_mode`` None: it goes."""

    path: str
    old_mode: int | None
    new_mode: int | None
    hunks: tuple[Hunk, ...]

    @property
    def added(self) -> list[bytes]:
        """The lines that this change adds."""
        return [line for hunk in self.hunks for sign, line in hunk.lines if sign == b"+"]


def malformed(what: str) -> PatchError:
    """The refusal of a text that is not a plain git diff."""
    return PatchError(
        Code.PATCH_SERIES,
        what,
        "a patch has the format of `git format-patch --zero-commit --no-signature --full-index "
        "--no-stat --no-renames`",
        "write it again with `vllm-av patch export`",
    )


def blob_id(content: bytes | None) -> str:
    """git's name for a file's content; forty zeros where there is no file."""
    if content is None:
        return NO_BLOB
    # git's object names are SHA-1; nothing here relies on it for security.
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def parse_diffs(text: bytes) -> list[FileDiff]:
    """All file changes in ``text``, which starts at the first ``diff --git``.

    Raises:
        PatchError: AV-PATCH-SERIES, naming the line that is not understood.
    """
    lines = split_lines(text)
    diffs: list[FileDiff] = []
    at = 0
    while at < len(lines):
        parsed, at = _parse_one(lines, at)
        if any(parsed.path == other.path for other in diffs):
            raise malformed(f"{parsed.path} is changed twice in one patch")
        diffs.append(parsed)
    return diffs


def _parse_one(lines: Sequence[bytes], at: int) -> tuple[FileDiff, int]:
    path = _header_path(lines[at])
    at += 1
    old_mode: int | None = REGULAR
    new_mode: int | None = REGULAR
    while at < len(lines) and not lines[at].startswith((b"diff --git ", b"@@ ")):
        line = lines[at].rstrip(b"\n")
        key, _, value = line.rpartition(b" ")
        if key == b"new file mode":
            old_mode, new_mode = None, _mode(value)
        elif key == b"deleted file mode":
            old_mode, new_mode = _mode(value), None
        elif index := _INDEX.fullmatch(lines[at]):
            if index[3]:
                old_mode = new_mode = _mode(index[3])
        elif not line.startswith((b"--- ", b"+++ ")):
            raise malformed(f"{path}: {line.decode(errors='replace')!r} is not understood")
        at += 1
    found: list[Hunk] = []
    while at < len(lines) and lines[at].startswith(b"@@ "):
        hunk, at = _parse_hunk(lines, at, path)
        found.append(hunk)
    if not found and old_mode == new_mode:
        raise malformed(f"{path}: nothing is changed")
    return FileDiff(path, old_mode, new_mode, tuple(found)), at


def _parse_hunk(lines: Sequence[bytes], at: int, path: str) -> tuple[Hunk, int]:
    head = _HUNK.fullmatch(lines[at])
    if head is None:
        raise malformed(f"{path}: {lines[at]!r} is no hunk header")
    old_left, new_left = (int(head[group]) if head[group] else 1 for group in (2, 4))
    body: list[tuple[bytes, bytes]] = []
    at += 1
    while old_left or new_left or (at < len(lines) and lines[at] == NO_NEWLINE):
        if at == len(lines):
            raise malformed(f"{path}: the hunk at line {head[1].decode()} ends too early")
        sign, line = lines[at][:1], lines[at][1:]
        if lines[at] == NO_NEWLINE and body:
            body[-1] = (body[-1][0], body[-1][1].removesuffix(b"\n"))
        elif sign in (b" ", b"-", b"+"):
            body.append((sign, line))
            old_left -= sign != b"+"
            new_left -= sign != b"-"
        else:
            raise malformed(f"{path}: {lines[at]!r} is no line of a hunk")
        if old_left < 0 or new_left < 0:
            raise malformed(f"{path}: the hunk at line {head[1].decode()} counts its lines wrong")
        at += 1
    return Hunk(int(head[1]), int(head[3]), tuple(body)), at


def _mode(value: bytes) -> int:
    if value not in _MODES:
        raise malformed(f"file mode {value.decode(errors='replace')!r}")
    return _MODES[value]


def _header_path(line: bytes) -> str:
    names = line.removeprefix(b"diff --git ").rstrip(b"\n")
    # Without renames both names are one: the line is two equal halves around a blank.
    middle = len(names) // 2
    first, second = _unquote(names[:middle]), _unquote(names[middle + 1 :])
    if names[middle : middle + 1] != b" " or not first.startswith(b"a/") or second[:2] != b"b/":
        raise malformed(f"{line!r} does not name one file")
    if first[2:] != second[2:]:
        raise malformed(f"{line!r} is a rename")
    try:
        path = first[2:].decode()
    except UnicodeDecodeError:
        raise malformed(f"{line!r} is not UTF-8") from None
    parts = path.split("/")
    if parts[0] != "vllm" or len(parts) < 2 or {"", ".", ".."} & set(parts):
        raise malformed(f"{path!r} lies outside the folder vllm/")
    if "\0" in path or len(path.splitlines()) > 1 or path.endswith(".pyc"):
        raise malformed(f"{path!r} cannot stand in RECORD, or is bytecode")
    if max(len(part.encode()) for part in parts) > NAME_BYTES:
        raise malformed(f"{path[:40]!r}... is longer than a file's name may be")
    return path


def _unquote(name: bytes) -> bytes:
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) > 1):
        return name

    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) if code.isdigit() else _ESCAPES[code]])

    return re.sub(rb'\\([0-3][0-7]{2}|[abtnvfr"\\])', plain, name[1:-1])


def _quote(name: bytes) -> bytes:
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in name):
        return name
    coded = (
        b"\\" + _LETTERS[byte]
        if byte in _LETTERS
        else (bytes([byte]) if 32 <= byte < 127 else b"\\%03o" % byte)
        for byte in name
    )
    return b'"' + b"".join(coded) + b'"'


def apply_diff(diff: FileDiff, old: bytes | None) -> tuple[bytes | None, list[Block]]:
    """The new content (None: no file) and the edit script that the hunks spell.

    Raises:
        PatchError: AV-PATCH-CONFLICT, naming the file and the line that does not fit.
    """
    if (old is None) != (diff.old_mode is None):
        raise conflict(diff, "the file is missing" if old is None else "the file exists already")
    lines = split_lines(old or b"")
    new: list[bytes] = []
    script: list[Block] = []
    at = 0
    for hunk in diff.hunks:
        start = hunk.old_start - any(sign != b"+" for sign, _ in hunk.lines)
        if start < at:
            raise conflict(diff, f"the hunk at line {hunk.old_start} overlaps the one before")
        new += lines[at:start]
        new_start = hunk.new_start - any(sign != b"-" for sign, _ in hunk.lines)
        if len(new) != new_start:
            raise conflict(diff, f"the hunk at line {hunk.old_start} would land at another line")
        at = _apply_hunk(diff, hunk, lines, start, new, script)
    new += lines[at:]
    content = b"".join(new)
    if diff.new_mode is None:
        if content:
            raise conflict(diff, "the deleted file has more lines than the patch")
        return None, script
    return content, script


def reverse_diff(diff: FileDiff) -> FileDiff:
    """The change that takes ``diff`` back."""
    signs = {b"+": b"-", b"-": b"+", b" ": b" "}
    hunks = (
        Hunk(hunk.new_start, hunk.old_start, tuple((signs[s], line) for s, line in hunk.lines))
        for hunk in diff.hunks
    )
    return FileDiff(diff.path, diff.new_mode, diff.old_mode, tuple(hunks))


def _apply_hunk(
    diff: FileDiff,
    hunk: Hunk,
    old: Sequence[bytes],
    at: int,
    new: list[bytes],
    script: list[Block],
) -> int:
    """Append the hunk's result to ``new`` and its blocks to ``script``; where it ends in old."""
    open_block = False
    for sign, line in hunk.lines:
        if sign != b"+" and (at >= len(old) or old[at] != line):
            raise conflict(diff, f"line {at + 1} is not {line.decode(errors='replace').strip()!r}")
        if sign == b" ":
            new.append(line)
            at += 1
            open_block = False
            continue
        if not open_block:
            script.append(Block(at, 0, len(new), 0))
            open_block = True
        block = script[-1]
        if sign == b"-":
            script[-1] = block._replace(m=block.m + 1)
            at += 1
        else:
            script[-1] = block._replace(n=block.n + 1)
            new.append(line)
    return at


def conflict(diff: FileDiff, why: str) -> PatchError:
    """The refusal of a change that does not fit."""
    return PatchError(
        Code.PATCH_CONFLICT,
        f"{diff.path}: {why}",
        "a patch applies without fuzz or offset",
        "the series is for another vLLM, or needs a patch that was left out",
    )


def render_diff(
    path: str,
    old: bytes | None,
    new: bytes | None,
    script: Sequence[Block],
    old_mode: int | None = REGULAR,
    new_mode: int | None = REGULAR,
) -> bytes:
    """The change of one file in git's format."""
    raw = path.encode()
    a, b = _quote(b"a/" + raw), _quote(b"b/" + raw)
    text = [b"diff --git %s %s\n" % (a, b)]
    if old_mode is None:
        text.append(b"new file mode %o\n" % (new_mode or 0))
    elif new_mode is None:
        text.append(b"deleted file mode %o\n" % old_mode)
    if old != new:
        mode = b" %o" % old_mode if old_mode and new_mode else b""
        ids = blob_id(old).encode(), blob_id(new).encode()
        text.append(b"index %s..%s%s\n" % (*ids, mode))
    body = hunks(split_lines(old or b""), split_lines(new or b""), script)
    if body:
        # git ends a name that holds a blank with a tab, so that `patch` reads it whole.
        tab = b"\t" if b" " in raw else b""
        text.append(b"--- " + (b"/dev/null" if old is None else a + tab) + b"\n")
        text.append(b"+++ " + (b"/dev/null" if new is None else b + tab) + b"\n")
    return b"".join(text) + body
