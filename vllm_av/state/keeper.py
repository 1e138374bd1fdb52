"""Keeps a scorer's state in its file while the server runs.

The state is copied now and then, on the device's own stream between one step and the next; a thread
writes a copy when there was none for a while, or when the last write is long ago. The end of the
process writes once more, but nobody may count on it: a supervisor gives a server few seconds.

Rule: no step waits, neither for the device nor for the disk. A write that fails is told once, and
the server goes on.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vllm_av.state import file

if TYPE_CHECKING:
    import torch

    from vllm_av.state.claim import Claim

COPIES = 0.25
"""Seconds between two copies."""
QUIET = 1.0
"""Seconds without a new copy after which the last one is written."""
WRITES = 10.0
"""Seconds between two writes of a server that is never quiet: what it forgets when it is killed."""

_open: dict[Path, Keeper] = {}


class Stateful(Protocol):
    """A scorer that keeps a state; see :class:`vllm_av.scorers.base.Scorer`."""

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """Its own tensors by name."""

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over what an earlier one had."""


def load(scorer: Stateful, arrays: file.Arrays) -> None:
    """Give a scorer the state that a file has.

    Raises:
        ValueError: it does not fit; the scorer is as it was.
    """
    import torch

    own = scorer.state_tensors()
    if own.keys() != arrays.keys():
        raise ValueError(f"it has {', '.join(sorted(arrays))} and not {', '.join(sorted(own))}")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    for name, tensor in tensors.items():
        there, here = ((t.dtype, tuple(t.shape)) for t in (tensor, own[name]))
        if there != here:
            raise ValueError(f"its {name} is {there} and not {here}")
    scorer.load_state(tensors)


def close(path: Path) -> None:
    """Let whoever keeps a state at ``path`` in this process write it, and end."""
    keeper = _open.pop(path, None)
    if keeper is not None:
        keeper.close()


class Keeper:
    """One scorer's file, from the moment it is made to the end of the process.

    Args:
        scorer: whose state it is.
        path: the file; nobody else in this process keeps a state there.
        identity: whose state it is, in words.
        warn: told one line where a write fails.
        refused: a file that is there already is somebody else's, and is put aside before the first
            write.
        claim: of the file; released at the end.
    """

    def __init__(
        self,
        scorer: Stateful,
        path: Path,
        identity: Mapping[str, Any],
        warn: Callable[[str], object],
        *,
        refused: bool = False,
        claim: Claim | None = None,
    ) -> None:
        self._scorer = scorer
        self._path = path
        self._identity = dict(identity)
        self._warn = warn
        self._refused = refused
        self._claim = claim
        self._failed = False
        self._pid = os.getpid()
        self._due = 0.0
        self._copied_at = self._written_at = time.monotonic()
        self._copies: dict[str, torch.Tensor] = {}
        self._copied: Any = None  # an event of the device
        self._buffers = threading.Lock()  # holds the copies
        self._wanted = threading.Event()  # a copy that is not written
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vllm_av state", daemon=True)
        self._thread.start()
        _open[path] = self
        atexit.register(self.close)
        # A child that multiprocessing forks runs these at its end, and not atexit's.
        Finalize(None, self.close, exitpriority=0)

    def tick(self) -> None:
        """Called after each observation, where the device's work is launched."""
        now = time.monotonic()
        if now < self._due or self._end.is_set() or not self._buffers.acquire(blocking=False):
            return
        try:
            self._copy()
            self._due, self._copied_at = now + COPIES, now
            self._wanted.set()
        finally:
            self._buffers.release()

    def close(self) -> None:
        """Write the state as it is now, and stop. Again is fine."""
        if self._end.is_set() or os.getpid() != self._pid:
            return
        self._end.set()
        self._wanted.set()
        self._thread.join()
        try:
            self._copy()
        except Exception as error:  # the device may be gone by now; the last copy is not
            self._warn(f"The last moments are missing from the state in {self._path}: {error}")
        if self._copies:
            self._write()
        if self._claim is not None:
            self._claim.release()

    def _copy(self) -> None:
        """Into the host's buffers, in the order of the stream."""
        import torch

        event = None
        # vLLM's steps are in that mode and the end of a process is not; a buffer must not change.
        with torch.inference_mode():
            for name, value in self._scorer.state_tensors().items():
                if name not in self._copies:
                    self._copies[name] = torch.empty_like(
                        value, device="cpu", pin_memory=value.is_cuda
                    )
                self._copies[name].copy_(value, non_blocking=True)
                if value.is_cuda and event is None:
                    event = torch.cuda.Event(blocking=True)
        if event is not None:
            event.record()
        self._copied = event

    def _run(self) -> None:
        while not self._end.is_set():
            self._wanted.wait()
            while not self._is_time() and not self._end.wait(QUIET / 4):
                pass
            if not self._end.is_set():
                self._write()

    def _is_time(self) -> bool:
        now = time.monotonic()
        return now - self._copied_at >= QUIET or now - self._written_at >= WRITES

    def _write(self) -> None:
        try:
            with self._buffers:
                self._wanted.clear()
                if self._copied is not None:
                    self._copied.synchronize()
                arrays = {name: value.numpy().copy() for name, value in self._copies.items()}
            if self._refused:
                file.put_aside(self._path)
                self._refused = False
            file.write(self._path, self._identity, arrays)
        except Exception as error:  # the server does not end for it
            if not self._failed:
                self._warn(str(error))
            self._failed = True
        else:
            self._failed = False
        self._written_at = time.monotonic()
