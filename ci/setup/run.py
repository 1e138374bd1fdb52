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
from vllm_av.errors import Code, SetupError, VllmAvError

ROOT = Path(__file__).resolve().parents[2]


def run(python: str, root: Path = ROOT, steps: tuple[Step, ...] = STEPS) -> int:
    """Bring ``.venv`` up to date, as :func:`bring` does."""
    return bring(Place(root, python), steps)


def bring(place: Place, steps: tuple[Step, ...]) -> int:
    """Bring an environment up to date; print nothing where it is.

    Returns the exit code: 0, 2 for what the user can mend, 130 when interrupted.
    """
    try:
        place.logs.mkdir(parents=True, exist_ok=True)
        with _only_one(place) as lock_fd:
            return _run(place, steps, lock_fd)
    except OSError as error:
        return _stopped(_unwritable(error), "before its first step")
    except KeyboardInterrupt:
        print("set-up interrupted while it waited; run make again", file=sys.stderr)
        return 130


def _run(place: Place, steps: tuple[Step, ...], lock_fd: int) -> int:
    # The interpreter behind a virtual environment can be uninstalled.
    sound = place.venv_python.exists()
    done: dict[str, str] = {}
    key = ""
    for number, step in enumerate(steps, 1):
        label = f"[{number}/{len(steps)}] {step.name}"
        progress = Progress(label)
        try:
            # A step's key holds the key of the one before it.
            key = digest([key, step.name, step.key(place)])
            if sound and _stamped(place, step) == key and step.holds(place):
                continue
            log = place.logs / f"{step.name}.log"
            log.unlink(missing_ok=True)
            progress.update(None)
            step.work(place, Runner(log, progress, lock_fd, place.root))
            done[step.name] = key
            _stamp(place, done)
        except VllmAvError as error:
            progress.clear()
            return _stopped(error, f"at step {label}")
        except OSError as error:
            progress.clear()
            return _stopped(_unwritable(error), f"at step {label}")
        except KeyboardInterrupt:
            progress.clear()
            print(f"set-up interrupted at step {label}; run make again", file=sys.stderr)
            return 130
        progress.done()
    return 0


def _stopped(error: VllmAvError, where: str) -> int:
    print(f"error: {error}", file=sys.stderr)
    print(f"set-up stopped {where}; what is done stays done", file=sys.stderr)
    return 2


def _unwritable(error: OSError) -> SetupError:
    return SetupError(
        Code.SETUP_WRITE,
        given=f"the system refuses: {error}",
        allowed="a disk with room, and a checkout whose files set-up may read and write",
        fix="free some disk or mend the rights, then run make again",
    )


def _stamped(place: Place, step: Step) -> str | None:
    stamp = place.stamps / step.name
    return stamp.read_text(errors="replace") if stamp.is_file() else None


def _stamp(place: Place, done: dict[str, str]) -> None:
    """Leave each stamp whole or not at all; they have no place before there is an environment.

    Their folder marks an environment as set-up's own, so only the step that makes one makes it.
    """
    if not place.stamps.is_dir():
        return
    for name, key in done.items():
        new = place.stamps / f"{name}.new"
        new.write_text(key)
        os.replace(new, place.stamps / name)


@contextmanager
def _only_one(place: Place) -> Iterator[int]:
    """Wait for another set-up of this checkout; the kernel frees the lock of a killed one."""
    with place.turn.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another set-up of this checkout", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
