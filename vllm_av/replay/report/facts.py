"""What a trace holds: rows, labels, temperatures, workloads, and what was left out and why.

Rule: everything is counted; what is left out of the figures is in a count of its own.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.replay.metrics import BINS
from vllm_av.replay.scoring import Regimes
from vllm_av.replay.stream import Stream
from vllm_av.replay.trace import Trace


def chance_ece(rate: float, labels: int, bins: int = BINS) -> float:
    """The equal-mass ECE that a perfect predictor shows on so many labels by chance.

    The mean of a bin of m labels is off by sqrt(2/pi) standard deviations, sqrt(rate (1-rate) / m);
    that of the mean rate is taken for all bins, which is a little too much where they differ.
    """
    if labels <= 0:
        return math.nan
    bins = min(bins, labels)
    return math.sqrt(2.0 / math.pi * rate * (1.0 - rate) * bins / labels)


@dataclass(frozen=True)
class Count:
    """Drafts of one position, temperature or workload.

    Attributes:
        name: of the group.
        number: of the group among its kind.
        drafts: rows.
        verified: rows that the target saw.
        labels: rows that are labelled, and they and those before them in their draft may teach and
            are finite: those of every figure.
        accepted: labels that were accepted.
        entropy: mean over ``drafts`` of the drafter's entropy at temperature 1, nats, or NaN.
    """

    name: str
    number: int
    drafts: int
    verified: int
    labels: int
    accepted: int
    entropy: float = math.nan

    @property
    def rate(self) -> float:
        return self.accepted / self.labels if self.labels else math.nan

    @property
    def chance(self) -> float:
        """See :func:`chance_ece`."""
        return chance_ece(self.rate, self.labels)


@dataclass(frozen=True)
class Facts:
    """See the module.

    Attributes:
        rows, steps, requests: draft tokens, decode steps, requests.
        total: all rows.
        positions, temperatures, workloads: the same apart; the last are empty without the column.
        masked: reason -> rows; a row with two reasons counts in both.
        masked_rows: rows with a reason; None where reasons were not recorded.
        not_finite: rows whose logits were no distribution.
        spared: labelled rows that no figure holds, for either reason.
    """

    rows: int
    steps: int
    requests: int
    total: Count
    positions: tuple[Count, ...]
    temperatures: tuple[Count, ...]
    workloads: tuple[Count, ...]
    masked: dict[str, int]
    masked_rows: int | None
    not_finite: int
    spared: int


def facts_of(trace: Trace, stream: Stream, regimes: Regimes) -> Facts:
    """Count.

    Args:
        trace: what is counted.
        stream: the same, laid out in its own steps.
        regimes: of its temperatures.
    """
    use = stream.labelled & stream.usable
    step = trace["step"]
    masked, masked_rows = _masked(trace)
    return Facts(
        rows=trace.num_rows,
        steps=1 + int((step[1:] != step[:-1]).sum()),
        requests=len(np.unique(trace["request"])),
        total=_counts(trace, use, np.zeros(trace.num_rows, np.int64), ["all"])[0],
        positions=tuple(
            _counts(trace, use, trace["position"], [str(k) for k in range(stream.num_positions)])
        ),
        temperatures=tuple(_counts(trace, use, regimes.of, list(regimes.names))),
        workloads=_workloads(trace, use),
        masked=masked,
        masked_rows=masked_rows,
        not_finite=int((~trace.finite).sum()),
        spared=int((trace.labelled & ~use).sum()),
    )


def _workloads(trace: Trace, use: NDArray[np.bool_]) -> tuple[Count, ...]:
    if not trace.has("workload"):
        return ()
    names = [*trace.words["workload"], "(none)"]
    counts = _counts(trace, use, workload_number(trace), names)
    return tuple(each for each in counts if each.drafts)


def workload_number(trace: Trace) -> NDArray[np.int64]:
    """[n], of each row's workload; those without one have the number after the last."""
    number = trace["workload"].astype(np.int64)
    return np.where(number < 0, len(trace.words["workload"]), number)


def _counts(
    trace: Trace, use: NDArray[np.bool_], number: NDArray[Any], names: list[str]
) -> list[Count]:
    """One count a group; ``number`` [n] is the group of each row."""

    def of(rows: NDArray[np.bool_]) -> NDArray[Any]:
        return np.bincount(number[rows], minlength=len(names))

    every = np.ones(trace.num_rows, bool)
    drafts, verified, labels = of(every), of(trace["verified"]), of(use)
    accepted = of(use & trace["accepted"])
    entropy = np.full(len(names), math.nan)
    if trace.has("entropy"):
        finite = trace.finite
        sums = np.bincount(number[finite], weights=trace["entropy"][finite], minlength=len(names))
        entropy = np.divide(sums, of(finite), out=entropy, where=of(finite) > 0)
    return [
        Count(
            name,
            number=i,
            drafts=int(drafts[i]),
            verified=int(verified[i]),
            labels=int(labels[i]),
            accepted=int(accepted[i]),
            entropy=float(entropy[i]),
        )
        for i, name in enumerate(names)
    ]


def _masked(trace: Trace) -> tuple[dict[str, int], int | None]:
    if "masked" not in trace.columns:
        return {}, None
    number = trace["masked"]
    counts = np.bincount(number[number >= 0], minlength=len(trace.words["masked"]))
    found: dict[str, int] = {}
    for words, count in zip(trace.words["masked"], counts, strict=True):
        for reason in dict.fromkeys(words.split("+")):
            if count:
                found[reason] = found.get(reason, 0) + int(count)
    return dict(sorted(found.items(), key=lambda pair: -pair[1])), int(counts.sum())
