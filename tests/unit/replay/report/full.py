"""A trace with every column, of known law, for reports."""

from typing import Any

import numpy as np

from tests.unit.replay.synthetic import synthetic
from vllm_av.replay.trace import Trace

WORDS = {
    "masked": ("top_k", "penalties+grammar"),
    "workload": ("docs", "code", "chat"),
}


def full(steps: int = 500, requests: int = 12, **wish: Any) -> Trace:
    """As :func:`synthetic`, with the optional columns beside.

    The head knows the log-odds and not the law; every twentieth request-step is masked, and the
    logits of every thirtieth are no distribution.
    """
    plain = synthetic(steps, requests, **wish)
    rng = np.random.default_rng(7)
    k = plain.info.num_speculative_tokens
    x = plain["log_odds"].astype(np.float64)
    group = np.arange(plain.num_rows) // k
    noise = rng.normal(0.0, 0.3, plain.num_rows)
    columns: dict[str, Any] = {
        "entropy": np.maximum(3.0 - x + noise, 0.0),
        "entropy_scaled": np.maximum(3.0 - x + noise, 0.0),
        "margin": np.maximum(x + 3.0 + noise, 0.0),
        "margin_scaled": np.maximum(x + 3.0 + noise, 0.0),
        # It knows more than any lossless feature, as it does on real pairs.
        "log_q_drawn": -rng.exponential(np.where(plain["accepted"], 0.2, 2.0)),
        "head": 1.0 / (1.0 + np.exp(-0.5 * x - noise)),
        "confidence": 1.0 / (1.0 + np.exp(-0.8 * x)),
    }
    columns = {name: values.astype(np.float32) for name, values in columns.items()}
    broken = group % 30 == 29
    for name in ("log_odds", "log_odds_scaled", *columns):
        if name not in ("head", "confidence"):
            columns[name] = columns.get(name, plain.columns.get(name)).copy()
            columns[name][broken] = np.nan
    columns["masked"] = np.where(group % 20 == 19, group // 20 % 2, -1).astype(np.int32)
    columns["workload"] = (plain["request"] % 4 - 1).astype(np.int32)
    info = plain.info.model_copy(update={"target": "Target", "draft": "Draft", "scorer": "other"})
    return Trace(info, plain.columns | columns, plain.num_rows, WORDS, "somewhere/full.parquet")
