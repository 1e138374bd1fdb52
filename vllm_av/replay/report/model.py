"""What a report says, as data: the page shows it and ``--json`` prints it.

Rule: a number is here before it is on the page.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from vllm_av.replay.info import TraceInfo
from vllm_av.replay.metrics import Figures
from vllm_av.replay.report.facts import Facts
from vllm_av.replay.report.predictors import Predictor


@dataclass(frozen=True)
class FeatureRow:
    """A feature and how well it predicts, fitted offline or as it is.

    Attributes:
        feature: key and title, see :class:`vllm_av.replay.report.features.Feature`.
        scaled: see there.
        figures: over the labels that have the feature.
    """

    key: str
    title: str
    scaled: bool | None
    lossless: bool
    fitted: bool
    figures: Figures


@dataclass(frozen=True)
class RegimeRow:
    """Features within one temperature regime.

    Attributes:
        name: of the regime.
        labels: in it.
        log_loss, auc: feature's key -> value.
    """

    name: str
    labels: int
    log_loss: dict[str, float]
    auc: dict[str, float]


@dataclass(frozen=True)
class SlopeRow:
    """A shared slope against one for each position, for one feature.

    Attributes:
        key, title, scaled: of the feature.
        shared, own: figures of either.
        error: standard error of the difference of their log-losses, as if labels were independent.
        slope: the shared one.
        slopes: [K], NaN where a position has too few labels.
    """

    key: str
    title: str
    scaled: bool | None
    shared: Figures
    own: Figures
    error: float
    slope: float
    slopes: tuple[float, ...]


@dataclass(frozen=True)
class GroupFit:
    """Coefficients fitted on one group alone.

    Attributes:
        name: of the group: a workload, a temperature regime.
        labels: it was fitted on.
        rate: how many of them were accepted.
        entropy: mean of the drafter's, at temperature 1, nats; NaN where it was not recorded.
        slope, intercepts: NaN where there were too few labels; intercepts [K].
        error: standard error of the slope.
    """

    name: str
    labels: int
    rate: float
    entropy: float
    slope: float
    error: float
    intercepts: tuple[float, ...]


@dataclass(frozen=True)
class Report:
    """See the module.

    Attributes:
        source: name of the trace's file.
        info, facts: what the trace says about itself and what it holds.
        scorer: key of the predictor in question, one of ``predictors``.
        predictors: judged on the whole trace, in time order where they learn.
        features, regimes, slopes, workloads, temperatures: the tables of fits; the last one for
            each feature in it.
        correlations: (slope, first intercept) of the workloads with their entropy, or NaN.
        notes: what is not here and why.
        parted: fits and figures are of different halves; False where there are too few steps.
        every: the fits used one draft of a request in so many, drawn at random.
    """

    source: str
    info: TraceInfo
    facts: Facts
    scorer: str
    predictors: tuple[Predictor, ...]
    features: tuple[FeatureRow, ...]
    regimes: tuple[RegimeRow, ...]
    slopes: tuple[SlopeRow, ...]
    workloads: tuple[GroupFit, ...]
    temperatures: dict[str, tuple[GroupFit, ...]]
    correlations: tuple[float, float]
    notes: Sequence[str] = field(default=())
    every: int = 1
    parted: bool = True

    def as_dict(self) -> dict[str, Any]:
        """JSON's types; NaN, which JSON has not, is null."""
        found = plain(self)
        assert isinstance(found, dict)
        return found


def plain(value: Any) -> Any:
    """Dataclasses as dicts, sequences as lists, NaN and infinities as None."""
    if isinstance(value, TraceInfo):
        return value.model_dump(exclude_none=True)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
