"""What ``vllm-av check`` says of the servers that run here.

Each is asked in a process of its own: in the server's working folder and with the server's own
variables, on which its paths, its hub cache and its flags hang.

Rule: nothing of a command line is shown but what the check quotes; a key to an API may stand there.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vllm_av.doctor.dists import Installed, scan
from vllm_av.doctor.findings import VLLM_DISTS
from vllm_av.doctor.servers import Server
from vllm_av.drafters import SUPPORTED
from vllm_av.errors import Code

ASK = "vllm_av.doctor.ask"
"""Not imported here: it needs pydantic, and the doctor works without."""
PATIENCE = 60.0
"""Seconds for one answer; the check needs less than three, and less than 15 if it asks vLLM."""

_THEIRS = re.compile(
    r"VLLM_|HF_|HUGGINGFACE_|TORCH_|(CUDA|HIP|ROCR)_VISIBLE_DEVICES$|HOME$|XDG_CACHE_HOME$"
)

Says = Literal["yes", "no", "unknown", "off", "not asked"]


@dataclass(frozen=True)
class Judged:
    """A server and its verdict.

    Args:
        pid: the server.
        says: the check's verdict; ``off`` where adaptive verification is not switched on; ``not
            asked`` where the check could not answer.
        lines: the reasons, or why there is no answer.
        vllm: whose rules were applied, and why those.
        reasons: the reasons as the check gives them to programs.
    """

    pid: int
    says: Says
    lines: tuple[str, ...]
    vllm: str
    reasons: tuple[Mapping[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"process {self.pid}: {self.says} ({self.vllm})"


def judge(server: Server, installed: Installed, *, ask_vllm: bool = False) -> Judged:
    """Ask the check; never raises.

    Args:
        ask_vllm: whether the check may ask vLLM's own classes, which takes seconds, or its table.
    """
    if server.elsewhere:
        line = "it runs in a container of its own; run `vllm-av doctor` in there"
        return Judged(server.pid, "not asked", (line,), "another file system")
    version, vllm = _vllm(server, installed)
    ways = "auto" if ask_vllm else "table"
    command = [sys.executable, "-m", ASK, ways, version or ""]
    try:
        done = subprocess.run(
            [*command, *server.arguments],
            cwd=server.folder,
            env=_environ(server),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Judged(server.pid, "not asked", (f"no answer in {PATIENCE:g} seconds",), vllm)
    except (OSError, ValueError) as error:
        return Judged(server.pid, "not asked", (f"the check did not run ({error})",), vllm)
    return _read(server.pid, answer, vllm)


def _read(pid: int, answer: Mapping[str, Any], vllm: str) -> Judged:
    error = answer.get("error")
    if error is not None:
        says: Says = "off" if error["code"] == Code.QUESTION_SPEC else "not asked"
        return Judged(pid, says, (f"[{error['code']}] {error['given']}",), vllm)
    reasons = tuple(answer["reasons"])
    lines = [
        f"{each['weight']}: [{each['code']}] {each['found']} ({each['where']})" for each in reasons
    ]
    lines += [f"note: {note}" for note in answer["notes"]]
    return Judged(pid, answer["verdict"], tuple(lines), vllm, reasons)


def _vllm(server: Server, installed: Installed) -> tuple[str | None, str]:
    """The version to ask about, None for this environment's own; and the same for people."""
    here = _version(installed)
    called: str | None = server.python
    if "/" not in server.python:
        called = shutil.which(server.python, path=server.environ.get("PATH"))
    folder = (server.folder / (called or sys.executable)).parent
    if folder == Path(sys.executable).parent:
        return None, f"vLLM {here or 'not installed'} of this environment"
    sites = [str(site) for site in folder.parent.glob("lib/python3*/site-packages")]
    there = _version(scan(sites))
    release = (there or "").partition("+")[0]
    if release in SUPPORTED:
        return release, f"vLLM {there} of {folder.parent}, taken for patched"
    return None, f"vLLM {there or 'unknown'} of {folder.parent}, judged as {here}"


def _version(installed: Installed) -> str | None:
    return next((v for name in VLLM_DISTS if (v := installed.version(name))), None)


def _environ(server: Server) -> dict[str, str]:
    """Ours, but for what a model, a cache or a flag hangs on."""
    ours = {name: value for name, value in os.environ.items() if not _THEIRS.match(name)}
    theirs = {name: value for name, value in server.environ.items() if _THEIRS.match(name)}
    return ours | theirs
