"""Run the steps that are not done yet, one set-up at a time."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ci.setup.child import Runner
from ci.setup.place import Place, digest
from ci.setup.progress import Progress
from ci.setup.steps import STEPS, Step
from vllm_av.errors import VllmAvError

ROOT = Path(__file__).resolve().parents[2]


def run(python: str, root: Path = ROOT, steps: tuple[Step, ...] = STEPS) -> int:
    """Bring ``.venv`` up to date; print nothing where it is.

    Returns the exit code: 0, 2 for what the user can mend, 130 when interrupted.
    """
    place = Place(root, python)
    place.logs.mkdir(parents=True, exist_ok=True)
    with _only_one(place) as lock_fd:
        done: dict[str, str] = {}
        for number, step, key in _pending(place, steps):
            label = f"[{number}/{len(steps)}] {step.name}"
            progress = Progress(label)
            log = place.logs / f"{step.name}.log"
            log.unlink(missing_ok=True)
            try:
                progress.update(None)
                step.work(place, Runner(log, progress, lock_fd, place.root))
                done[step.name] = key
                _stamp(place, done)
            except VllmAvError as error:
                progress.clear()
                print(f"error: {error}", file=sys.stderr)
                print(f"set-up stopped at step {label}; what is done stays done", file=sys.stderr)
                return 2
            except KeyboardInterrupt:
                progress.clear()
                print(f"set-up interrupted at step {label}; run make again", file=sys.stderr)
                return 130
            progress.done()
    return 0


def _pending(place: Place, steps: tuple[Step, ...]) -> Iterator[tuple[int, Step, str]]:
    """Number, step and key of each step to do; a done step's key is part of the next one's."""
    # The interpreter behind a virtual environment can be uninstalled.
    sound = place.venv_python.exists()
    key = ""
    for number, step in enumerate(steps, 1):
        key = digest([key, step.name, step.key(place)])
        stamp = place.stamps / step.name
        if not (sound and stamp.is_file() and stamp.read_text() == key):
            yield number, step, key


def _stamp(place: Place, done: dict[str, str]) -> None:
    """Leave each stamp whole or not at all; they have no place before there is an environment."""
    if not place.venv.is_dir():
        return
    place.stamps.mkdir(exist_ok=True)
    for name, key in done.items():
        new = place.stamps / f"{name}.new"
        new.write_text(key)
        os.replace(new, place.stamps / name)


@contextmanager
def _only_one(place: Place) -> Iterator[int]:
    """Wait for another set-up of this checkout; the kernel frees the lock of a killed one."""
    with (place.logs / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another set-up of this checkout", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
