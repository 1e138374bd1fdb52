"""What must hold between the rows of a trace, whoever wrote it.

Rule: each fault is told with the first row that has it; nothing is mended silently.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.errors import Code, TraceError
from vllm_av.replay.columns import COLUMNS, Column

Columns = Mapping[str, NDArray[Any]]


def check_rows(columns: Columns, num_speculative_tokens: int, where: str) -> None:
    """See that the rows are in order and do not contradict each other.

    Args:
        columns: the required ones, and those optional ones that were read; [n] each.
        num_speculative_tokens: K.
        where: names the trace in an error.

    Raises:
        TraceError: ``AV-TRACE-ROWS``, ``AV-TRACE-COLUMN``.
    """
    if not len(columns["step"]):
        raise TraceError(
            Code.TRACE_ROWS,
            given=f"{where} has no rows",
            allowed="a trace of one decode step or more",
            fix="record again, for longer",
        )
    _check_values(columns, num_speculative_tokens, where)
    _check_order(columns, where)
    _check_grades(columns, where)


def _check_values(columns: Columns, num_speculative_tokens: int, where: str) -> None:
    position = columns["position"]
    _refuse(
        position >= num_speculative_tokens,
        where,
        f"a position that is not below num_speculative_tokens ({num_speculative_tokens})",
        "positions from 0 to num_speculative_tokens - 1",
    )
    finite = np.isfinite(columns["log_odds"])
    for name, values in columns.items():
        column = COLUMNS[name]
        if column.kind == "float32":
            _check_range(column, values, where)
            if column.feature and name != "log_odds":
                _refuse(
                    np.isfinite(values) != finite,
                    where,
                    f"{name} and log_odds of which one is finite and the other is not",
                    "features that are all finite, or none where the logits were no distribution",
                )
    _refuse(
        ~np.isfinite(columns["temperature"]), where, "no finite temperature", "temperatures from 0"
    )


def _check_range(column: Column, values: NDArray[Any], where: str) -> None:
    # NaN compares as False; an infinite feature is one that is not finite, and no value.
    wrong = (values < column.low) | (values > column.high)
    if wrong.any() and column.feature:
        wrong &= np.isfinite(values)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TraceError(
            Code.TRACE_COLUMN,
            given=f"{where} has {values[row]:g} for {column.name} in row {row}",
            allowed=f"{column.low:g} to {column.high:g}",
            fix="write the trace as docs/trace-format.md says",
        )


def _check_order(columns: Columns, where: str) -> None:
    step, request, position = (columns[name] for name in ("step", "request", "position"))
    _refuse(_after(step[1:] < step[:-1]), where, "a step below the row before", "rows by step")
    first = position == 0
    # What is not a draft's first row follows the row before.
    follows = np.zeros(len(step), bool)
    follows[1:] = (
        (step[1:] == step[:-1])
        & (request[1:] == request[:-1])
        & (position[1:] == position[:-1] + 1)
    )
    _refuse(
        ~first & ~follows,
        where,
        "a position that does not follow the row before",
        "the rows of a step's request side by side, with positions 0, 1, 2, ...",
    )
    starts = np.flatnonzero(first)
    order = np.lexsort((request[starts], step[starts]))
    a, b = starts[order[:-1]], starts[order[1:]]
    twice = np.zeros(len(step), bool)
    twice[np.maximum(a, b)[(step[a] == step[b]) & (request[a] == request[b])]] = True
    _refuse(
        twice,
        where,
        "a request that is graded twice in one step",
        "the rows of a step's request once, side by side",
    )
    for name in ("temperature", "workload"):
        if name in columns:
            values = columns[name]
            changed = np.zeros(len(step), bool)
            changed[1:] = follows[1:] & (values[1:] != values[:-1])
            _refuse(
                changed & ~first,
                where,
                f"another {name} than the row before, which is of the same draft",
                f"one {name} for a step's request",
            )


def _check_grades(columns: Columns, where: str) -> None:
    verified, accepted = columns["verified"], columns["accepted"]
    later = columns["position"] > 0
    _refuse(
        accepted & ~verified,
        where,
        "a draft token that was accepted and not verified",
        "accepted only where verified",
    )
    for name, values in (("verified", verified), ("accepted", accepted)):
        hole = np.zeros(len(values), bool)
        hole[1:] = later[1:] & values[1:] & ~values[:-1]
        _refuse(
            hole,
            where,
            f"a draft token that was {name}, though the one before it was not",
            f"{name} tokens from position 0 on without a gap",
        )


def _after(pairs: NDArray[Any]) -> NDArray[Any]:
    """[n] from the comparison of each row but the first with the one before, [n - 1]."""
    return np.concatenate([[False], pairs])


def _refuse(wrong: NDArray[Any], where: str, what: str, allowed: str) -> None:
    if wrong.any():
        raise TraceError(
            Code.TRACE_ROWS,
            given=f"{where} has in row {int(np.argmax(wrong))} {what}",
            allowed=allowed,
            fix="write the trace as docs/trace-format.md says",
        )
