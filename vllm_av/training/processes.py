"""Several processes for one stage, and one process at a time for each stage.

Rule: no process outlives its stage: where one fails, the others are ended at once, and where the
stage itself is killed, the system ends them.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_av.errors import Code, TrainingError

_PARENT_DEATH = 1  # prctl's PR_SET_PDEATHSIG
_POLLED_EVERY = 0.2  # seconds


def together(module: str, arguments: list[list[str]], environment: dict[str, str]) -> None:
    """Run ``python -m module`` once with each of ``arguments``, side by side.

    Raises:
        TrainingError: ``AV-TRAINING-PROCESS`` as soon as one of them fails.
    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        for each in arguments:
            command = [sys.executable, "-m", module, *each]
            running.append(subprocess.Popen(command, env=os.environ | environment))
        while None in (codes := [process.poll() for process in running]) and not any(codes):
            time.sleep(_POLLED_EVERY)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    failed = [number for number, code in enumerate(codes) if code]
    if failed:
        raise TrainingError(
            Code.TRAINING_PROCESS,
            given=f"process {failed[0]} of {module} ended with {codes[failed[0]]}",
            allowed="0",
            fix="read what it said above, mend it and start again: what is made is kept",
        )


def end_with_parent() -> None:
    """Have the system end this process when the one that started it dies."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PARENT_DEATH, signal.SIGTERM):
        raise OSError(ctypes.get_errno(), "prctl")


@contextmanager
def alone(work: Path, stage: str) -> Iterator[None]:
    """Wait until no other process makes ``stage`` in ``work``, and keep others from it."""
    with (work / f".{stage}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{stage}: another process makes it; waiting for that", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
