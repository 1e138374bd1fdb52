"""The numbers of a draft distribution that could predict acceptance, from the columns of a trace.

Rule: a feature is *lossless* if it does not depend on the token that was drawn. One that does may
be compared and never used: drafts that survive a trimming by it are no longer distributed as q.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.replay import optimum
from vllm_av.replay.columns import CLAMP
from vllm_av.replay.trace import Trace

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Feature:
    """One row of the table of features.

    Attributes:
        key: stable, for JSON.
        title: for people.
        column: of the trace, that it is made of.
        scaled: of the distribution after temperature, else as if the temperature were 1; None
            where that is not a question.
        lossless: whether it does not depend on the token that was drawn.
        fitted: by a logistic regression; else the values are probabilities as they are.
        values: column [n] -> feature [n].
    """

    key: str
    title: str
    column: str
    scaled: bool | None
    values: Callable[[NDArray[Any]], Floats]
    lossless: bool = True
    fitted: bool = True


def _plain(values: NDArray[Any]) -> Floats:
    return values.astype(np.float64)


def _probability(log_odds: NDArray[Any]) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-log_odds.astype(np.float64))))


def _logit_of_log(log_q: NDArray[Any]) -> Floats:
    """log q -> log-odds of q, within plus and minus 40."""
    log_q = np.minimum(log_q.astype(np.float64), 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(log_q - np.log(-np.expm1(log_q)), -CLAMP, CLAMP))


def _double_log(log_q: NDArray[Any]) -> Floats:
    """log q -> -log(-log q), within plus and minus 40."""
    log_q = np.minimum(log_q.astype(np.float64), 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(-np.log(-log_q), -CLAMP, CLAMP))


def _logit(p: NDArray[Any]) -> Floats:
    return np.asarray(optimum.feature({optimum.HEAD: p}, optimum.HEAD))


def _both(
    key: str, title: str, values: Callable[[NDArray[Any]], Floats], column: str, fitted: bool = True
) -> tuple[Feature, Feature]:
    return (
        Feature(f"{key}_scaled", title, f"{column}_scaled", True, values, fitted=fitted),
        Feature(key, title, column, False, values, fitted=fitted),
    )


FEATURES = (
    *_both("log_odds", "logit(q_max)", _plain, "log_odds"),
    *_both("entropy", "entropy", _plain, "entropy"),
    *_both("margin", "margin", _plain, "margin"),
    Feature("logit_drawn", "logit(q_sampled)", "log_q_drawn", True, _logit_of_log, lossless=False),
    Feature(
        "double_log_drawn", "−log(−log q_sampled)", "log_q_drawn", True, _double_log, lossless=False
    ),
    *_both("max_probability", "q_max, no fit", _probability, "log_odds", fitted=False),
    Feature("logit_head", "logit(confidence head)", "head", None, _logit),
    Feature("head", "confidence head, no fit", "head", None, _plain, fitted=False),
)
"""In the order of the table."""


def recorded(trace: Trace) -> tuple[Feature, ...]:
    """Those that this trace has the column for."""
    return tuple(feature for feature in FEATURES if trace.has(feature.column))
