"""Give one environment the files of another by hard links: seconds, and no disk.

Rule: what names its own environment is never shared: a script is written anew, and what the venv
module has made stays. pip and `vllm-av patch` put a new file in a file's place and write none in
place, so that neither reaches the other environment through a link.
"""

import errno
import os
import shutil
from collections.abc import Collection
from pathlib import Path

_SHEBANG_LIMIT = 127
"""Bytes that every Linux reads of a script's first line."""

_NO_LINK = {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP}
"""How file systems refuse hard links."""


def share(source: Path, target: Path, keep_out: Collection[str]) -> None:
    """Link every file below ``source`` into ``target``, where ``target`` has none of that name.

    Args:
        source: an environment.
        target: a fresh one of the same Python.
        keep_out: paths below ``source`` that are left out, with all that they hold.
    """
    _share(source, target, {str(source / path) for path in keep_out})
    for script in (target / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            _rebase(script, source / "bin", target / "bin")


def _share(source: Path, target: Path, keep_out: Collection[str]) -> None:
    for entry in list(os.scandir(source)):
        new = target / entry.name
        if entry.path in keep_out or (os.path.lexists(new) and not _is_folder(new)):
            continue
        if entry.is_symlink():
            new.symlink_to(os.readlink(entry.path))
        elif entry.is_dir():
            new.mkdir(exist_ok=True)
            _share(Path(entry.path), new, keep_out)
        else:
            link(Path(entry.path), new)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy where the file system has none."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copy2(source, target)


def _rebase(script: Path, old: Path, new: Path) -> None:
    """Write a script anew that starts the Python of ``old``, so that it starts that of ``new``."""
    content = script.read_bytes()
    moved = rebased(content, os.fsencode(old), os.fsencode(new))
    if moved != content:
        mode = script.stat().st_mode
        script.unlink()
        script.write_bytes(moved)
        script.chmod(mode)


def rebased(script: bytes, old: bytes, new: bytes) -> bytes:
    """``script`` with the Python of the folder ``new`` where it named that of ``old``."""
    if not script.startswith(b"#!"):
        return script
    first, _, rest = script.partition(b"\n")
    if first == b"#!/bin/sh":  # as installers write it where the path is long or has spaces
        second, _, rest = rest.partition(b"\n")
        return b"\n".join((first, second.replace(old + b"/", new + b"/"), rest))
    if not first.startswith(b"#!" + old + b"/"):
        return script
    program = new + first.removeprefix(b"#!" + old)
    if len(program) + 2 > _SHEBANG_LIMIT:
        return b"#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n%s" % (program, rest)
    return b"#!%s\n%s" % (program, rest)
