"""The vLLM servers of this user that run now, read from ``/proc``.

A command line is what its process was started with, as long as the process has not changed its
title. vLLM's front end keeps it; its engines and workers call themselves ``VLLM::EngineCore`` and
the like, or are copies of the front end where ``setproctitle`` is missing.

Rule: a process that goes, or that may not be read, is left out; nothing here raises.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PYTHON = re.compile(r"python[0-9.]*|pypy[0-9.]*")
_MODULES = ("vllm.entrypoints.cli.main", "vllm.entrypoints.openai.api_server")
_SCRIPT = "vllm/entrypoints/openai/api_server.py"
_TITLE = re.compile(r"VLLM(::\w+)+")
"""What vLLM's processes call themselves, unless VLLM_PROCESS_NAME_PREFIX says otherwise."""

_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True)
class Server:
    """One.

    Args:
        pid: of the process that was started.
        arguments: what follows ``vllm serve``; a key to an API may be among it.
        folder: the working folder, for relative paths.
        python: its interpreter, as called.
        environ: its variables, as they were when it was started.
        elsewhere: whether it has a file system of its own (a container), where paths mean others.
    """

    pid: int
    arguments: tuple[str, ...] = field(repr=False)
    folder: Path
    python: str
    environ: Mapping[str, str] = field(repr=False)
    elsewhere: bool = False


@dataclass(frozen=True)
class Titled:
    """A process of vLLM that shows no command line, and that no server here started.

    The engine of a program of its own, or a front end that has changed its title.
    """

    pid: int
    title: str

    def __str__(self) -> str:
        return f"{self.title}: not asked, as its title stands in place of its command line"


@dataclass(frozen=True)
class Running:
    """All of them."""

    servers: tuple[Server, ...] = ()
    titled: tuple[Titled, ...] = ()


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    words: tuple[str, ...]
    folder: Path


def running(root: Path = Path("/"), user: int | None = None) -> Running:
    """Look through the processes of ``user`` (default: this one). ``root`` is where proc lies."""
    user = os.getuid() if user is None else user
    processes = {process.pid: process for process in _processes(root / "proc", user)}
    asked = {pid: words for pid, p in processes.items() if (words := serve_arguments(p.words))}
    servers = []
    for pid, (python, arguments) in sorted(asked.items()):
        process = processes[pid]
        above = processes.get(process.parent)
        # A copy of the front end, which has not renamed itself.
        if above is not None and above.words == process.words:
            continue
        own = root / "proc" / str(pid)
        servers.append(
            Server(pid, arguments, process.folder, python, _environ(own), _elsewhere(own))
        )
    titled = [
        Titled(pid, process.words[0])
        for pid, process in sorted(processes.items())
        if len(process.words) == 1
        and _TITLE.fullmatch(process.words[0])
        and not any(pid in asked or _is_title(processes[pid]) for pid in _above(process, processes))
    ]
    return Running(tuple(servers), tuple(titled))


def serve_arguments(words: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """The interpreter and what follows ``vllm serve``; None where a process is no such server.

    Only a Python process is one: shells and wrappers hold the same words and start it.
    """
    python, *rest = [*words] or [""]
    if not _PYTHON.fullmatch(Path(python).name):
        return None
    while rest:
        word = rest.pop(0)
        if word == "-m":
            module = rest.pop(0) if rest else ""
            return _after(python, module in _MODULES, module == _MODULES[0], rest)
        if word in _OPTIONS_WITH_VALUE:
            rest = rest[1:]
        elif word == "-c" or not word:
            return None
        elif not word.startswith("-"):
            script = Path(word).name == "vllm"
            return _after(python, script or word.endswith(_SCRIPT), script, rest)
    return None


def _after(
    python: str, is_vllm: bool, has_verbs: bool, rest: list[str]
) -> tuple[str, tuple[str, ...]] | None:
    if not is_vllm or (has_verbs and rest[:1] != ["serve"]):
        return None
    return python, tuple(rest[1:] if has_verbs else rest)


def _processes(proc: Path, user: int) -> Iterator[_Process]:
    try:
        entries = sorted(entry for entry in os.listdir(proc) if entry.isdigit())
    except OSError:
        return
    for entry in entries:
        own = proc / entry
        try:
            if own.stat().st_uid != user:
                continue
            words = os.fsdecode((own / "cmdline").read_bytes()).rstrip("\0").split("\0")
            status = (own / "status").read_text(errors="replace")
            parent = re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE)
            # A title is followed by the rest of the words that it was written over, or by spaces.
            words = [words[0].strip()] if _TITLE.match(words[0]) else words
            yield _Process(int(entry), int(parent[1]) if parent else 0, tuple(words), _folder(own))
        except OSError:
            continue


def _folder(own: Path) -> Path:
    try:
        return Path(os.readlink(own / "cwd"))
    except OSError:
        return Path("/")


def _environ(own: Path) -> dict[str, str]:
    try:
        text = os.fsdecode((own / "environ").read_bytes())
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, equals, value in pairs if name and equals}


def _elsewhere(own: Path) -> bool:
    try:
        return os.readlink(own / "ns/mnt") != os.readlink(own.parent / "self/ns/mnt")
    except OSError:
        return False


def _is_title(process: _Process) -> bool:
    return bool(_TITLE.fullmatch(process.words[0]))


def _above(process: _Process, processes: Mapping[int, _Process]) -> Iterator[int]:
    """Its parent, that one's parent, and so on."""
    pid = process.parent
    while pid in processes:
        yield pid
        pid = processes[pid].parent
