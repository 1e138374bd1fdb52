"""Reads a trace: one row per draft token of a request's decode step (docs/trace-format.md).

A *label* is known where the target saw the token and accepted all before it: the accepted
positions and the first rejected one. It is derived here and never stored.

Rule: whatever a file holds, it is read as the format says or refused in one line; needs pyarrow,
and neither torch nor vLLM.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.errors import Code, TraceError
from vllm_av.replay.check import check_rows
from vllm_av.replay.columns import COLUMNS
from vllm_av.replay.info import TraceInfo
from vllm_av.replay.parquet import read_columns

__all__ = ["Trace", "TraceInfo", "read"]


@dataclass(frozen=True)
class Trace:
    """A trace in memory; columns are read by ``trace[name]``.

    Args:
        info: what it says about itself.
        columns: name -> [num_rows]. ``head`` and ``confidence`` are NaN where they are null; of
            ``masked`` and ``workload`` the column is int32 numbers into :attr:`words`, -1 for null.
        num_rows: draft tokens.
        words: what the numbers of ``masked`` and ``workload`` stand for.
        source: its path, for people.
    """

    info: TraceInfo
    columns: dict[str, NDArray[Any]]
    num_rows: int
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: str = "the trace"

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The column.

        Raises:
            TraceError: ``AV-TRACE-COLUMN`` where the trace has none of that name.
        """
        if name not in self.columns:
            raise TraceError(
                Code.TRACE_COLUMN,
                given=f"{self.source} has no column {name!r}",
                allowed=f"here: {', '.join(self.columns)}",
                fix="record a trace that has it, or do without",
            )
        return self.columns[name]

    def has(self, name: str) -> bool:
        """Whether there is such a column with a value in it."""
        if name not in self.columns:
            return False
        values, column = self.columns[name], COLUMNS[name]
        if not column.nullable:
            return True
        return bool((values >= 0).any() if column.kind == "words" else np.isfinite(values).any())

    @cached_property
    def labelled(self) -> NDArray[np.bool_]:
        """[num_rows]: whether the target's grade of this token, all before accepted, is known."""
        known = self["verified"].copy()
        known[1:] &= (self["position"][1:] == 0) | self["accepted"][:-1]
        return known

    @cached_property
    def finite(self) -> NDArray[np.bool_]:
        """[num_rows]: whether the drafter's logits were a distribution."""
        finite: NDArray[np.bool_] = np.isfinite(self["log_odds"])
        return finite

    @cached_property
    def may_teach(self) -> NDArray[np.bool_]:
        """[num_rows]: whether a scorer may learn from the row if it is labelled."""
        unmasked = self.columns["masked"] < 0 if "masked" in self.columns else True
        return self.finite & unmasked


def read(path: str | Path, columns: Collection[str] | None = None) -> Trace:
    """Read a trace: a Parquet file, or a folder of ``part-NNNNNN.parquet``.

    Args:
        path: of the file or the folder.
        columns: the optional columns that are wanted, of those that there are (None: all). The
            required ones and ``masked`` are always read and checked.

    Raises:
        TraceError: ``AV-TRACE-...``; :mod:`vllm_av.errors` says what each means.
    """
    where = str(path)
    info, found, words = read_columns(Path(path), where, _wanted(columns))
    check_rows(found, info.num_speculative_tokens, where)
    return Trace(info, found, len(found["step"]), words, where)


def _wanted(columns: Collection[str] | None) -> list[str]:
    if columns is None:
        return list(COLUMNS)
    always = {name for name, column in COLUMNS.items() if column.required} | {"masked"}
    if unknown := set(columns) - set(COLUMNS):
        raise ValueError(f"no column of a trace: {', '.join(sorted(unknown))}")
    return [name for name in COLUMNS if name in always or name in columns]
