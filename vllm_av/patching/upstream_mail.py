"""The patches of a series as mails for vLLM: cut for its own tree, with their tests.

Rule: a mail applies to the pristine files after exactly the mails that it needs, without an offset
where that is one chain. Its text has the headings of vLLM's pull requests; the trailers of the
series are ours and stay here. Nobody has signed it off: that is for whoever sends it.
"""

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_av.errors import Code, PatchError
from vllm_av.patching.diff import REGULAR, FileDiff, apply_diff, parse_diffs, render_diff
from vllm_av.patching.mail import Patch
from vllm_av.patching.needs import Read, applied, closure
from vllm_av.patching.offset import relocated
from vllm_av.patching.script import Block, split_lines, tidy
from vllm_av.patching.series import Files, Series
from vllm_av.patching.upstream import (
    TESTS,
    Beside,
    ran_on,
    read_beside,
    read_test,
    sendable,
)


@dataclass(frozen=True)
class Mail:
    """One, in the order of the series."""

    file: str
    patch: str
    title: str
    needs: tuple[str, ...]
    """Files of the mails that come first, in their order."""
    related: tuple[int, ...]
    tests: tuple[str, ...]
    text: bytes


def mails_of(series: Series, read: Read, root: Path, only: str | None = None) -> list[Mail]:
    """The mails of a series, or of one patch with what it needs.

    What the newest series no longer has makes no mail, unless it is named.

    Args:
        read: pristine files; None where there is no such file.
        root: where the series lies, and ``upstream`` beside it.
        only: name of a patch.

    Raises:
        PatchError: AV-PATCH-UPSTREAM, naming the patch that lacks something; AV-PATCH-NO-SERIES,
            where there is no patch of that name; AV-PATCH-CONFLICT, where one does not apply to
            what it says that it needs.
    """
    needs = {patch.name: _needs(series, patch) for patch in series.patches}
    wanted: Collection[str] = sendable(root)
    if only is not None:
        if only not in needs:
            raise PatchError(
                Code.PATCH_NO_SERIES,
                f"the series for {series.version} has no patch {only}",
                ", ".join(needs),
                "name one of these",
            )
        wanted = {only, *needs[only]}
    chosen = [patch for patch in series.patches if patch.name in wanted]
    files = {patch.name: _file_name(number, patch) for number, patch in enumerate(chosen, 1)}
    titles = {patch.name: patch.subject for patch in chosen}
    cut: dict[str, Patch] = {}
    made = []
    for patch in chosen:
        first = needs[patch.name]
        beside = read_beside(root, patch.name)
        tests = {path: read_test(root, patch.name, path) for path in beside.tests}
        parts = _cut(patch, [cut[name] for name in first], read)
        cut[patch.name] = replace(patch, diffs=tuple(parse_diffs(b"".join(parts.values()))))
        parts |= {f"{TESTS}/{path}": _added(f"{TESTS}/{path}", tests[path]) for path in tests}
        head = _head(patch, beside, [titles[name] for name in first], ran_on(root, patch.name))
        made.append(
            Mail(
                files[patch.name],
                patch.name,
                patch.subject,
                tuple(files[name] for name in first),
                beside.related,
                tuple(f"{TESTS}/{path}" for path in tests),
                head + b"".join(parts[path] for path in sorted(parts)),
            )
        )
    return made


def _needs(series: Series, patch: Patch) -> list[str]:
    """What comes before a patch, in the order of the series."""
    found = closure(series.patches, patch)
    return [one.name for one in series.patches if one.name in found]


def _file_name(number: int, patch: Patch) -> str:
    return f"{number:04}-{patch.name.rpartition('/')[2]}"


def _cut(patch: Patch, first: Sequence[Patch], read: Read) -> dict[str, bytes]:
    """Each file's change, as it is on the pristine files with the mails before it applied."""
    touched = {diff.path for one in (*first, patch) for diff in one.diffs}
    pristine: Files = {path: read(path) for path in touched}
    files = applied(first, pristine)
    after = applied([patch], files)
    return {diff.path: _changed(diff, files[diff.path], after[diff.path]) for diff in patch.diffs}


def _changed(diff: FileDiff, old: bytes | None, new: bytes | None) -> bytes:
    _, script = apply_diff(relocated(diff, old), old)
    script = tidy(old or b"", new or b"", script)
    return render_diff(diff.path, old, new, script, diff.old_mode, diff.new_mode)


def _added(path: str, content: bytes) -> bytes:
    lines = len(split_lines(content))
    return render_diff(path, None, content, [Block(0, 0, 0, lines)], None, REGULAR)


def _head(patch: Patch, beside: Beside, first: Sequence[str], where: str) -> bytes:
    """Headers and message. A heading of Markdown without ``#``, which git drops from an edit."""
    header, _, body = patch.head.partition(b"\n\n")
    purpose = [body.decode().strip().rpartition("\n\n")[0]]  # the last paragraph is trailers
    if beside.related:
        purpose.append("Related: " + ", ".join(f"#{number}" for number in beside.related))
    if first:
        order = ", in this order" if len(first) > 1 else ""
        listed = "\n".join(_wrapped(title, "* ") for title in first)
        purpose.append(f"Comes after{order}:\n\n{listed}")
    commands = "\n".join(f"    pytest {TESTS}/{path}" for path in beside.tests)
    counted = f"{_counted(beside)} Run on {where}, not on a GPU."
    sections = {
        "Purpose": purpose,
        "Test Plan": [beside.test_plan, commands],
        "Test Result": [_wrapped(counted), beside.test_result],
    }
    texts = [
        "\n\n".join([f"{name}\n{'-' * len(name)}", *filter(None, parts)])
        for name, parts in sections.items()
    ]
    message = "\n\n\n".join(texts)
    if not message.isascii() and b"\nContent-Type: " not in header:
        header += (
            b"\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8"
            b"\nContent-Transfer-Encoding: 8bit"
        )
    return header + b"\n\n" + message.encode() + b"\n\n"


def _counted(beside: Beside) -> str:
    failed = beside.failed_without
    if failed == beside.passed:
        what = "it fails" if failed == 1 else "all fail"
    else:
        what = f"{failed} of them {'fails' if failed == 1 else 'fail'}"
    return f"{beside.passed} passed; without the change, {what}."


def _wrapped(text: str, mark: str = "") -> str:
    return textwrap.fill(
        text,
        width=72,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )
