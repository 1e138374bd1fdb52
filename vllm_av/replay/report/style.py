"""The colour and marker of each predictor, the same in every figure of a page."""

from dataclasses import dataclass

from vllm_av.replay.report.build import HEAD, OPTIMUM, SERVED, UPSTREAM
from vllm_av.replay.report.model import Report
from vllm_av.replay.report.predictors import Predictor

_NUMBERS = {UPSTREAM: 1, HEAD: 2, SERVED: 3, OPTIMUM: 4}


@dataclass(frozen=True)
class Style:
    """Attributes:
    numbers: predictor's key -> number of its style; the scorer in question has the first.
    drawn: those that figures show: what learns or speaks by itself, not the offline fit.
    """

    numbers: dict[str, int]
    drawn: tuple[Predictor, ...]

    @classmethod
    def of(cls, report: Report) -> "Style":
        numbers = {
            each.key: 0 if each.key == report.scorer else _NUMBERS[each.key]
            for each in report.predictors
        }
        drawn = tuple(each for each in report.predictors if each.key != OPTIMUM)
        return cls(numbers, drawn)
