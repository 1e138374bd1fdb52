"""A patch as a mail: headers, message, trailers, diffs.

Rule: the text has the format of ``git format-patch --zero-commit --no-signature --full-index
--no-stat --no-renames``, so that ``git am`` takes it; it never changes unless the patch does. Its
author is a placeholder, since whoever sends a patch signs it, and it carries three trailers:

    Why:              what is wrong or missing without the patch
    Upstream-Status:  not-sent | sent <url> | merged in <version> | rejected <url>
    Removal:          when the patch can go

and, where it needs others of the series, a fourth:

    Requires:         group/name.patch, group/other.patch
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.utils import format_datetime
from pathlib import Path

from vllm_av.patching.diff import FileDiff, malformed, parse_diffs

AUTHOR = "Unsent patch <unsent@example.invalid>"
TRAILERS = ("Why", "Upstream-Status", "Removal")

_FROM_LINE = b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
_STATUS = re.compile(r"not-sent|(sent|rejected) https?://\S+|merged in \S+")
_SUBJECT = re.compile(r"\[PATCH\]( ?\[[^\]]+\])+ \S.*")
ENDS_MESSAGE = re.compile(r"---|diff -|Index: |From ")
"""How a line begins that is no longer of the message, for git."""
_TRAILER = re.compile(r"([A-Z][A-Za-z-]*): +(\S.*)")


@dataclass(frozen=True)
class Patch:
    """One patch of a series. ``head`` is kept byte for byte, up to the first ``diff``."""

    name: str
    head: bytes
    diffs: tuple[FileDiff, ...]
    text: bytes

    @property
    def added(self) -> int:
        """How many lines the patch adds."""
        return sum(len(diff.added) for diff in self.diffs)

    @property
    def subject(self) -> str:
        """The title, with vLLM's tags and without ``[PATCH]``."""
        return _subject(self.head).removeprefix("[PATCH] ")

    @property
    def trailers(self) -> dict[str, str]:
        """The trailers of the message's last paragraph, continuation lines joined."""
        return _trailers(self.head)

    @property
    def requires(self) -> tuple[str, ...]:
        """Names of the patches that this one says it needs."""
        names = self.trailers.get("Requires", "").split(",")
        return tuple(name.strip() for name in names if name.strip())


def parse_patch(name: str, text: bytes) -> Patch:
    """Read one patch.

    Raises:
        PatchError: AV-PATCH-SERIES, where it is no such mail.
    """
    if not text.startswith(_FROM_LINE):
        raise malformed(f"{name} does not start with the commit id of forty zeros")
    cut = text.find(b"\ndiff --git ") + 1
    if not cut:
        raise malformed(f"{name} changes nothing")
    return Patch(name, text[:cut], tuple(parse_diffs(text[cut:])), text)


def faults(patch: Patch) -> list[str]:
    """What is wrong with the message of a patch: all of it."""
    found: list[str] = []
    message = message_from_bytes(patch.head.partition(b"\n")[2], policy=policy.default)
    subject = _subject(patch.head)
    if not _SUBJECT.fullmatch(subject):
        found.append("the subject is not `[PATCH] [Tag] title` with vLLM's tags")
    elif f"\n{_folded(subject)}\n".encode() not in patch.head:
        found.append("the subject is not plain ASCII, folded at column 78 as git does it")
    if message["From"] != AUTHOR:
        found.append(f"From is not the placeholder `{AUTHOR}`")
    if not message["Date"]:
        found.append("the header Date is missing")
    given = patch.trailers
    found += [f"the trailer {key} is missing or empty" for key in TRAILERS if not given.get(key)]
    status = given.get("Upstream-Status")
    if status and not _STATUS.fullmatch(status):
        found.append(
            f"Upstream-Status is {status!r}, not `not-sent`, `sent URL`, `rejected URL` or "
            "`merged in VERSION`"
        )
    body = patch.head.partition(b"\n\n")[2]
    for line in body.decode(errors="replace").splitlines():
        if ENDS_MESSAGE.match(line):
            found.append(f"git would take {line!r} for the end of the message")
    ours = [line for diff in patch.diffs for line in diff.added]
    if any(b"vllm_av" in line or b"vllm-av" in line for line in [*ours, body]):
        found.append("it mentions vllm_av, so it could not be sent upstream")
    return found


def read_message(path: Path) -> str:
    """The message for a new patch, from a file.

    Raises:
        PatchError: AV-PATCH-SERIES, where it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise malformed(f"the message {path} is no text in UTF-8 that can be read") from error


def compose_head(message: str, date: datetime) -> bytes:
    """Headers and message for a new patch.

    Args:
        message: first line the title with vLLM's tags, a blank line, the body, the trailers.
        date: when the change was made.

    Raises:
        PatchError: AV-PATCH-SERIES, where the title is not plain ASCII.
    """
    title, _, body = message.strip().partition("\n")
    if not title.isascii():
        raise malformed(f"the title {title!r} is not plain ASCII")
    day = format_datetime(date).replace(", 0", ", ")  # git pads no day of the month
    lines = [f"From: {AUTHOR}", f"Date: {day}", _folded(f"[PATCH] {title}")]
    if not body.isascii():
        lines += [
            "MIME-Version: 1.0",
            "Content-Type: text/plain; charset=UTF-8",
            "Content-Transfer-Encoding: 8bit",
        ]
    return _FROM_LINE + "\n".join([*lines, "", body.strip("\n"), "", ""]).encode()


def message_of(patch: Patch) -> str:
    """Title, body and trailers, as :func:`compose_head` takes them."""
    body = patch.head.partition(b"\n\n")[2].decode(errors="replace").strip("\n")
    return f"{patch.subject}\n\n{body}\n"


def compose(name: str, head: bytes, rendered: Sequence[bytes]) -> Patch:
    """A patch of a message and rendered file changes."""
    return parse_patch(name, head + b"".join(rendered))


def _folded(subject: str) -> str:
    """The header as git folds it: at blanks, to at most 78 columns."""
    return textwrap.fill(
        f"Subject: {subject}",
        width=78,
        subsequent_indent=" ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _subject(head: bytes) -> str:
    message = message_from_bytes(head.partition(b"\n")[2], policy=policy.default)
    return " ".join(str(message["Subject"] or "").split())


def _trailers(head: bytes) -> dict[str, str]:
    paragraph = head.decode(errors="replace").strip().rpartition("\n\n")[2]
    found: dict[str, str] = {}
    key = ""
    for line in paragraph.splitlines():
        if match := _TRAILER.fullmatch(line.rstrip()):
            key = match[1]
            found[key] = match[2]
        elif key and line[:1].isspace():
            found[key] += " " + line.strip()
        else:
            key = ""
    return found
