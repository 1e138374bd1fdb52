"""Run a command with its output in a log and its progress on the screen."""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.setup.place import clean_env
from ci.setup.progress import Progress

POLL_S = 0.2


@dataclass(frozen=True)
class Runner:
    """Runs the commands of one step.

    Args:
        log: takes the output of every command of the step, one after the other.
        progress: the step's display.
        lock_fd: held open by every child, so that a child that outlives a killed set-up keeps
            a second set-up waiting.
        cwd: the checkout.
    """

    log: Path
    progress: Progress
    lock_fd: int
    cwd: Path

    @property
    def shown(self) -> str:
        """The log, as an error names it."""
        return str(self.log.relative_to(self.cwd))

    def run(
        self, command: Sequence[str], fraction: Callable[[], float] | None = None
    ) -> tuple[int, str]:
        """Exit code and output; ``fraction`` says how far it is."""
        with self.log.open("ab+") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            start = log.tell()
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.cwd,
                env=clean_env(),
                pass_fds=(self.lock_fd,),
            )
            try:
                while child.poll() is None:
                    self.progress.update(fraction() if fraction else None)
                    time.sleep(POLL_S)
            except BaseException:
                child.terminate()
                child.wait()
                raise
            log.seek(start)
            return child.returncode, log.read().decode(errors="replace")


def reason(output: str) -> str:
    """The line of ``output`` that says why it failed: pip's last ERROR, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR:", "error:"))]
    return (errors or lines or ["no output"])[-1][:300]
