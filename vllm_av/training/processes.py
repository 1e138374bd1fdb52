"""Several processes for one stage, and one process at a time for each stage.

``python -m vllm_av.training.processes PARENT MODULE ...`` is one of them: it ties itself to the
process PARENT, then runs MODULE as ``python -m`` does.

Rule: no process outlives its stage: where one fails, the others are ended at once, and where the
stage itself is killed, the system ends them. What it imports before it is tied takes no time.
"""

import ctypes
import fcntl
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_av.errors import Code, TrainingError, VllmAvError

_PARENT_DEATH = 1  # prctl's PR_SET_PDEATHSIG
_POLLED_EVERY = 0.2  # seconds


def together(module: str, arguments: list[list[str]], environment: dict[str, str]) -> None:
    """Run ``python -m module`` once with each of ``arguments``, side by side and tied to this.

    Raises:
        TrainingError: ``AV-TRAINING-PROCESS`` as soon as one of them fails.
    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        for each in arguments:
            command = [sys.executable, "-m", __name__, str(os.getpid()), module, *each]
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


def end_with_parent(parent: int) -> None:
    """Have the system end this process when ``parent``, which started it, dies, or has died.

    By the one signal that nobody can have told it to ignore.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PARENT_DEATH, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


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


def _run(parent: int, module: str, arguments: list[str]) -> None:
    end_with_parent(parent)
    # A terminal's Ctrl-C is the stage's to answer; it ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except VllmAvError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    _run(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
