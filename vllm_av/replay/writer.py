"""Writes a trace while an engine runs: a folder of parts, each of them a whole Parquet file.

A part is one row group. It is written beside its place and renamed when it is whole and on the
disk, so that a run that is killed loses at most the part being filled: that of :data:`PART_ROWS`
rows or of :data:`PART_SECONDS`.

Rule: recording never stops or delays the engine. The disk is written by a thread; what it cannot
take in time is left out, whole parts of it; an error ends the recording. Each is warned of once.
"""

import errno
import fcntl
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.errors import Code, TraceError, told
from vllm_av.replay.columns import COLUMNS, METADATA_KEY, Column
from vllm_av.replay.info import TraceInfo
from vllm_av.replay.parquet import PART, require_pyarrow

PART_ROWS = 1 << 16
"""Rows of a part, about 3 MB of memory and 2 MB on the disk: more would be lost by a kill, fewer
would compress worse."""
PART_SECONDS = 60.0
"""After which the next step ends a part, so that little traffic is not lost for hours."""
_WAITING_PARTS = 4
_LAST_SECONDS = 30.0

Block = Mapping[str, NDArray[Any]]
Words = Mapping[str, Sequence[str]]


def check_folder(path: Path) -> None:
    """See that a recording could begin in ``path``, as far as can be seen without making it.

    Raises:
        TraceError: ``AV-TRACE-WRITE``, ``AV-TRACE-LIBRARY``.
    """
    require_pyarrow()
    try:
        if "\0" in str(path):
            raise ValueError("it holds a NUL")
        if path.is_dir():
            _require_empty(path)
            writable = path
        elif path.exists() or path.is_symlink():
            raise _refused(path, "is not a folder")
        else:
            writable = path.parent
            if not writable.is_dir():
                raise _refused(path, "lies in no folder that exists")
        if not os.access(writable, os.W_OK | os.X_OK):
            raise _refused(path, "cannot be made or written")
    except (OSError, ValueError) as error:  # a name that is too long, or has a NUL in it
        raise _refused(path, f"cannot be used: {error}") from error


class TraceWriter:
    """Takes rows, writes parts.

    Args:
        path: a folder that does not exist yet, or an empty one; its parent must exist.
        info: what the trace says about itself; may be replaced, for the parts still to come.
        warn: is told, at most once, why the recording ended or is incomplete.
        part_rows: for tests.

    Attributes:
        failure: why nothing is recorded any more; None while all is well.
        parts: whole parts written.
        dropped: rows that were left out, because the disk was slower than they came.

    Raises:
        TraceError: ``AV-TRACE-WRITE`` where the folder holds something, another recording writes
            into it, or it cannot be written; ``AV-TRACE-LIBRARY``.
    """

    def __init__(
        self,
        path: Path,
        info: TraceInfo,
        warn: Callable[[str], object],
        part_rows: int = PART_ROWS,
    ) -> None:
        self._pa = require_pyarrow()
        self.path = path
        self.info = info
        self.failure: TraceError | None = None
        self.parts = self.dropped = 0
        self._warn = warn
        self._part_rows = part_rows
        self._blocks: list[Block] = []
        self._rows = 0
        self._since = 0.0
        self._words: Words = {}
        self._queue: queue.Queue[Any] = queue.Queue(_WAITING_PARTS)
        self._lock: int | None
        self._lock, self._made = _claimed(path)
        self._thread = threading.Thread(target=self._work, name="trace-writer", daemon=True)
        self._thread.start()

    def add(self, block: Block, words: Words) -> None:
        """Take the rows of one decode step or more; never waits for the disk.

        Args:
            block: every column of the format, [n] each, floats as NaN where they are null; of
                ``masked`` and ``workload`` int32 numbers into ``words``, -1 for null.
            words: lists that only grow, as long as the same ones are given.
        """
        if self.failure is not None or not len(block["step"]):
            return
        now = time.monotonic()
        if not self._blocks:
            self._since = now
        self._blocks.append(block)
        self._words = words
        self._rows += len(block["step"])
        if self._rows >= self._part_rows or now - self._since >= PART_SECONDS:
            self._hand_over()

    def close(self) -> None:
        """Write what is there and let go of the folder; again is fine."""
        if self._lock is None:
            return
        if self._rows and self.failure is None:
            self._hand_over(_LAST_SECONDS)
        with suppress(queue.Full):  # the disk has not answered for long
            self._queue.put(None, timeout=_LAST_SECONDS)
            self._thread.join(_LAST_SECONDS)
        os.close(self._lock)
        self._lock = None
        if not self.parts and self._made:
            with suppress(OSError):  # something else was put there
                self.path.rmdir()

    def _hand_over(self, patience: float | None = None) -> None:
        words = {name: tuple(known) for name, known in self._words.items()}
        part = (self._blocks, words, self.info)
        rows = self._rows
        self._blocks, self._rows = [], 0
        try:
            self._queue.put(part, patience is not None, patience)
        except queue.Full:
            self.dropped += rows
            if self.dropped == rows:
                self._warn(
                    f"the disk is slower than {self.path} grows: parts of the trace are left out"
                )

    def _work(self) -> None:
        while (part := self._queue.get()) is not None:
            if self.failure is not None:
                continue
            try:
                self._write(*part)
            # pyarrow has its own kinds of errors besides OSError; none of them may end the engine.
            except Exception as error:
                reason = told(error).partition("\n")[0]
                self.failure = _refused(self.path, f"cannot be written any more: {reason}")
                self._warn(f"recording has ended: {self.failure}")

    def _write(self, blocks: list[Block], words: Words, info: TraceInfo) -> None:
        pa = self._pa
        arrays = [
            _array(pa, column, np.concatenate([block[name] for block in blocks]), words)
            for name, column in COLUMNS.items()
        ]
        table = pa.table(arrays, names=list(COLUMNS)).replace_schema_metadata(
            {METADATA_KEY: info.model_dump_json(exclude_none=True)}
        )
        whole = self.path / PART.format(self.parts)
        beside = whole.with_name(f".{whole.name}.tmp")
        try:
            with beside.open("wb") as file:
                pa.parquet.write_table(
                    table,
                    file,
                    row_group_size=len(table),
                    compression="zstd",
                    write_page_checksum=True,
                )
                file.flush()
                os.fsync(file.fileno())
            beside.rename(whole)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
        self.parts += 1


def _array(pa: Any, column: Column, values: NDArray[Any], words: Words) -> Any:
    if column.kind == "words":
        numbers = pa.array(values.astype(np.int32), mask=values < 0)
        known = pa.array(words.get(column.name, ()), pa.string())
        return pa.DictionaryArray.from_arrays(numbers, known)
    values = np.ascontiguousarray(values, column.kind)
    return pa.array(values, mask=np.isnan(values) if column.nullable else None)


def _claimed(path: Path) -> tuple[int, bool]:
    """The folder, made where it is not there, as a lock that ends with this process."""
    made = False
    try:
        try:
            path.mkdir()
            made = True
        except FileExistsError:
            if not path.is_dir():
                raise _refused(path, "is not a folder") from None
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refused(path, f"cannot be made or written: {reason}") from error
    try:
        _lock(folder, path)
        _require_empty(path)
    except TraceError:
        os.close(folder)
        raise
    return folder, made


def _lock(folder: int, path: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some file systems know no such locks; an empty folder is all that can be asked there.
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise _refused(path, "is being written by another recording") from error


def _require_empty(path: Path) -> None:
    if any(path.iterdir()):
        raise _refused(path, "holds something already")


def _refused(path: Path, what: str) -> TraceError:
    return TraceError(
        Code.TRACE_WRITE,
        given=f"the folder of the trace, {path}, {what}",
        allowed="a folder that does not exist yet, in one that exists and can be written",
        fix="name another one, or make room",
    )
