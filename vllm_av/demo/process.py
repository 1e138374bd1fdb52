"""Runs one arm as a child and ends it, whatever happens to either of them.

Rule: no process outlives the demonstration. The child leads a session of its own, which is killed
as a whole when the parent leaves for any reason; were the parent killed, the child sees its stdin
close and ends itself.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from vllm_av.cache import unusable
from vllm_av.demo.figures import ArmResult
from vllm_av.demo.settings import ENVIRONMENT, Arm, Pair, Settings
from vllm_av.errors import Code, DemoError

PhaseSeen = Callable[[str, float | None], None]

_LAST_WORDS_SECONDS = 20.0
_POLL_SECONDS = 0.05
_PYTHON = (sys.executable, "-m", "vllm_av.demo.arm")
_TRACEBACK_END = re.compile(r"^(?:\(.*?\) )?(?:ERROR .*?\] )?([A-Za-z_.]+(?:Error|Exception)\b.*)$")


def run_arm(
    arm: Arm,
    settings: Settings,
    pair: Pair,
    log: Path,
    seen: PhaseSeen,
    command: tuple[str, ...] = _PYTHON,
) -> ArmResult:
    """Run ``arm`` in a process of its own and return what it reports.

    Args:
        arm: which of the three.
        settings: the user's choices.
        pair: folders of target and drafter.
        log: file for all that the child and vLLM print.
        seen: called with each phase and the fraction of it that is done (None: unknown).
        command: program and first arguments; the number of a file descriptor is added.

    Raises:
        DemoError: the child's own, or ``AV-DEMO-ENGINE`` with the last telling line of the log.
        SetupError: ``AV-CACHE-DIR`` if the log cannot be written.
    """
    paths = {name: path and str(path) for name, path in asdict(pair).items()}
    job = {"arm": arm, "settings": asdict(settings), **paths}
    try:
        output = log.open("w", encoding="utf-8")
    except OSError as error:
        raise unusable(log.parent, str(error)) from error
    with output, _child(command, job, output) as events:
        for event in events:
            if "result" in event:
                return ArmResult.model_validate(event["result"])
            if "error" in event:
                told = event["error"]
                raise DemoError(**{**told, "code": Code(told["code"])})
            seen(event["phase"], event["fraction"])
    raise DemoError(
        Code.DEMO_ENGINE,
        given=f"the arm {arm!s} ended early: {telling_line(log)}",
        allowed="an engine that runs to its end",
        fix=f"read {log}",
    )


def telling_line(log: Path) -> str:
    """The last line of ``log`` that names an exception, else its last line."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "its log is gone"
    for number, line in reversed(list(enumerate(lines))):
        if match := _TRACEBACK_END.match(line):
            # Pydantic puts what is wrong on the two lines after the one that names the exception.
            more = lines[number + 1 : number + 3] if "validation error" in line else []
            return " ".join([match[1], *map(str.strip, more)])
    return next((line for line in reversed(lines) if line.strip()), "it printed nothing")


@contextmanager
def _child(
    command: tuple[str, ...], job: dict[str, Any], output: Any
) -> Iterator[Iterator[dict[str, Any]]]:
    """Start ``command``, hand it ``job``, yield its events; leave no process behind."""
    ours, theirs = os.pipe()
    try:
        process = subprocess.Popen(
            [*command, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs,),
            start_new_session=True,
            env={**os.environ, **ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            text=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    assert process.stdin is not None
    with os.fdopen(ours, encoding="utf-8") as events:
        try:
            # A child that died at once has closed its end; its log says why.
            with suppress(BrokenPipeError):
                print(json.dumps(job), file=process.stdin, flush=True)
            yield _until_end(events, process)
        finally:
            _end(process)


def _until_end(events: TextIO, process: "subprocess.Popen[str]") -> Iterator[dict[str, Any]]:
    yield from map(json.loads, events)
    # A failing child closes its end first and prints its traceback afterwards.
    deadline = time.monotonic() + _LAST_WORDS_SECONDS
    while not _ended(process.pid) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _ended(pid: int) -> bool:
    """Asked without reaping: the number stays the child's until its group has been killed."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _end(process: "subprocess.Popen[str]") -> None:
    # Nothing has reaped the child yet, so that the number cannot be anybody else's.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
