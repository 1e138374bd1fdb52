"""Small valid traces, as a stranger would write them with pyarrow alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

INFO = {"version": 1, "num_speculative_tokens": 3, "censoring": "budget"}


def columns() -> dict[str, Any]:
    """Three drafts of three tokens by two requests in two steps; the last one is trimmed to one."""
    return {
        "step": [4, 4, 4, 4, 4, 4, 7, 7, 7],
        "request": [0, 0, 0, 1, 1, 1, 0, 0, 0],
        "position": [0, 1, 2] * 3,
        "temperature": [0.0] * 3 + [0.7] * 3 + [0.0] * 3,
        "verified": [True] * 6 + [True, False, False],
        "accepted": [True, True, False, False, False, False, True, False, False],
        "log_odds": [2.0, 1.0, -1.0, 0.5, 0.0, 40.0, float("nan"), 1.5, -40.0],
    }


def every_column() -> dict[str, Any]:
    """The same with the optional columns."""
    nan = float("nan")
    drawn = [-0.1, -0.3, -1.3, -0.5, -0.7, 0.0, nan, -0.2, -9.0]
    positive = [0.4, 0.6, 0.5, 0.7, 0.7, 0.0, nan, 0.5, 3.0]
    found = columns()
    return found | {
        "log_odds_scaled": found["log_odds"],
        "entropy": positive,
        "entropy_scaled": positive,
        "margin": positive,
        "margin_scaled": positive,
        "log_q_drawn": drawn,
        "head": [None, *[0.5] * 8],
        "confidence": [0.0, 1.0, *[0.25] * 6, None],
        "masked": pa.array([None] * 3 + ["top_k+grammar"] * 3 + [None] * 3).dictionary_encode(),
        "workload": pa.array(["docs"] * 3 + [None] * 3 + ["docs"] * 3).dictionary_encode(),
    }


def write(path: Path, found: dict[str, Any] | None = None, info: Any = INFO) -> Path:
    """Write a trace to ``path``; ``info`` is JSON text, or what becomes it, or None."""
    table = pa.table(columns() if found is None else found)
    if info is not None:
        text = info if isinstance(info, str | bytes) else json.dumps(info)
        table = table.replace_schema_metadata({"vllm_av.trace": text})
    pq.write_table(table, path)
    return path


def same(a: Any, b: Any) -> bool:
    """Whether two columns hold the same, NaN being like NaN."""
    return np.array_equal(np.asarray(a, float), np.asarray(b, float), equal_nan=True)
