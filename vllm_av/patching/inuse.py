"""Which running processes use a vLLM tree?

Rule: a process counts when it has mapped a shared object of the tree, or when its command is
vLLM's and its environment is the tree's. Processes of other users are judged by their command.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_av.errors import Code, PatchError
from vllm_av.patching.tree import PACKAGE, Tree

PROC = Path("/proc")
SHOWN = 80
"""Letters of a command line that an error shows."""

_MODULE = re.compile(rf"{PACKAGE}(\..*)?")
_TITLE = "VLLM::"  # what vLLM's processes call themselves


@dataclass(frozen=True)
class User:
    """A process that uses the tree."""

    pid: int
    command: str


def refuse_if_used(tree: Tree, verb: str) -> None:
    """Raise where a running process uses the tree that ``verb`` shall change.

    Raises:
        PatchError: AV-PATCH-IN-USE, naming the processes.
    """
    users = list(users_of(tree))
    if users:
        names = ", ".join(f"{user.pid} ({user.command})" for user in users)
        raise PatchError(
            Code.PATCH_IN_USE,
            f"the vLLM in {tree.site} is used by process {names}",
            "no process uses the tree while it changes",
            f"stop it and run `vllm-av patch {verb}` again",
        )


def users_of(tree: Tree) -> Iterator[User]:
    """The processes that use the tree, this one left out."""
    for folder in sorted(PROC.glob("[0-9]*"), key=lambda folder: int(folder.name)):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        argv = _argv(folder)
        # A kernel thread, or one that has just ended.
        if argv and _uses(tree, folder, argv) and _sees(tree, folder):
            yield User(pid, _shown(argv))


def _shown(argv: list[str]) -> str:
    """A command line by what tells it from others: without the folders of program and script."""
    line = " ".join(" ".join([*(Path(word).name for word in argv[:2]), *argv[2:]]).split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN].rstrip()} ..."


def _uses(tree: Tree, folder: Path, argv: list[str]) -> bool:
    mapped = _mapped(folder)
    if any(name.startswith(f"{tree.site}/{PACKAGE}/") for name in mapped):
        return True
    if argv[0].startswith(_TITLE):
        return any(name.startswith(f"{tree.site}/") for name in mapped)
    return _starts_vllm(argv, folder, tree.site.parent.parent.parent / "bin")


def _sees(tree: Tree, folder: Path) -> bool:
    """Is the tree what the process finds under that name? A container has other files there."""
    try:
        theirs = (folder / "root" / tree.site.relative_to("/")).stat()
    except PermissionError:
        return True
    except OSError:
        return False
    ours = tree.site.stat()
    return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)


def _starts_vllm(argv: list[str], folder: Path, programs: Path) -> bool:
    """``<env>/bin/vllm ...`` or ``<env>/bin/python -m vllm...``, not yet far enough to map."""
    if any(Path(arg).name == PACKAGE and _below(arg, folder, programs) for arg in argv[:2]):
        return True
    module = argv.index("-m") + 1 if "-m" in argv[:-1] else 0
    return bool(module and _MODULE.fullmatch(argv[module]) and _below(argv[0], folder, programs))


def _below(arg: str, folder: Path, programs: Path) -> bool:
    """Does a program named on a command line lie in ``programs``?"""
    if "/" not in arg:
        return False
    try:
        start = Path(os.readlink(folder / "cwd"))
    except OSError:
        start = Path("/")
    # The folder is resolved and the program is not: an environment's python is a link out of it.
    return (start / arg).parent.resolve() == programs.resolve()


def _argv(folder: Path) -> list[str]:
    try:
        text = (folder / "cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in text.split(b"\0") if part]


def _mapped(folder: Path) -> set[str]:
    try:
        lines = (folder / "maps").read_bytes().splitlines()
    except OSError:
        return set()
    fields = (line.split(maxsplit=5) for line in lines)
    names = (part[5].decode(errors="replace") for part in fields if len(part) == 6)
    return {name.removesuffix(" (deleted)") for name in names if name.startswith("/")}
