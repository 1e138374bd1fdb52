"""Traces in memory whose law is known: made in an instant, of any length."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vllm_av.estimator.formula import sigmoid
from vllm_av.replay.info import TraceInfo
from vllm_av.replay.trace import Trace


def synthetic(
    steps: int = 100,
    requests: int = 8,
    positions: int = 3,
    temperatures: Sequence[float] = (0.0, 1.0),
    slope: float = 0.8,
    intercepts: Sequence[float] = (0.3, 0.0, -0.3),
    verified: int | None = None,
    seed: int = 0,
    **columns: Any,
) -> Trace:
    """A drafter with normal log-odds and a target that follows them by one logistic law.

    Args:
        steps: decode steps, numbered from 1 up.
        requests: in each of them; each keeps its temperature.
        slope, intercepts: the law, of the unscaled log-odds.
        verified: drafts of each request-step that the target sees; None: all.
        columns: put in place of these, or beside them.
    """
    rng = np.random.default_rng(seed)
    groups, seen = steps * requests, positions if verified is None else verified
    feature = rng.normal(1.0, 2.0, (groups, positions)).astype(np.float32)
    yes = rng.random((groups, positions)) < sigmoid(slope * feature + np.array(intercepts))
    place = np.tile(np.arange(positions, dtype=np.int16), groups)
    accepted = np.logical_and.accumulate(yes, axis=1) & (np.arange(positions) < seen)
    request = np.tile(np.repeat(np.arange(requests), positions), steps)
    temperature = np.asarray(temperatures, np.float32)[request % len(temperatures)]
    by = np.where(temperature > 0.0, temperature, 1.0)
    found: dict[str, Any] = {
        "step": np.repeat(np.arange(steps) + 1, requests * positions),
        "request": request,
        "position": place,
        "temperature": temperature,
        "verified": place < seen,
        "accepted": accepted.ravel(),
        "log_odds": feature.ravel(),
        "log_odds_scaled": np.clip(feature.ravel() / by, -40.0, 40.0),
    }
    found |= columns
    censoring: Any = "none" if seen == positions else "budget"
    info = TraceInfo(num_speculative_tokens=positions, censoring=censoring)
    return Trace(info, found, groups * positions, source="here")
