"""A replay's result for people: plain lines of at most 100 columns.

Rule: every number here stands in the JSON too.
"""

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from vllm_av.replay.metrics import Figures
from vllm_av.replay.run import Result
from vllm_av.replay.scoring import FROM_STEP
from vllm_av.replay.tables import Part

_HEAD = (
    f"{'labels':>9}  {'AUC':>5}  {'log-loss':>8}  {'Brier':>5}  {'ECE w.':>6}  {'ECE m.':>6}"
    f"  {'chance':>6}  {'said':>5}  {'came':>5}"
)


def lines(result: Result) -> Iterator[str]:
    """What ``vllm-av trace replay`` prints."""
    counts = result.counts
    yield (
        f"{result.wish.scorer} on {result.trace.source}: {counts['rows']:,} drafts of"
        f" {counts['request_steps']:,} request-steps in {counts['steps']:,} decode steps"
    )
    if result.trace.info.censoring == "budget":
        yield "the draft budget was in force: what it did not admit has no label"
    left_out = [
        f"{counts[key]:,} {words}"
        for key, words in (("masked", "masked"), ("not_a_distribution", "no distribution"))
        if counts[key]
    ]
    if left_out:
        yield f"left out: {', '.join(left_out)}, and what follows one in its request-step"
    early = " (a short trace)" if result.begins < FROM_STEP else ""
    yield f"scored from decode step {result.begins}{early}; the optimum is fitted on the first half"
    found = result.tables
    for title, parts in (
        ("temperature", (*found.regimes, found.overall)),
        ("position", (*found.positions, found.overall)),
    ):
        for kind in ("conditional", "survival"):
            yield ""
            yield f"{kind}, by {title}"
            yield f"  {title:<11} {_HEAD}"
            for part in parts:
                figures = part.conditional if kind == "conditional" else part.survival
                yield f"  {part.name:<11} {_row(figures)}"
    yield ""
    yield "conditional log-loss, and the offline optimum's: of each feature, fitted per temperature"
    features = list(found.overall.optimum.features)
    yield f"  {'':<11} {'log-loss':>8}  {'optimum':>7}  {'gap':>7}" + "".join(
        f" {_SHORT.get(feature, feature):>7}" for feature in features
    )
    for part in (*found.regimes, found.overall):
        yield f"  {part.name:<11} {_beside(part)}" + "".join(
            f" {_number(part.optimum.features[feature], 4):>7}" for feature in features
        )
    pooled = found.overall.optimum.pooled
    yield f"  {'one fit':<11} {'':>26}" + "".join(
        f" {_number(pooled[feature], 4):>7}" for feature in features
    )
    yield from _NOTES
    yield ""
    yield "coefficients at the end" if result.state else "it has no coefficients"
    yield from _coefficients(result.state, "  ")
    seconds = result.seconds
    yield (
        f"{sum(seconds.values()):.1f} s: {seconds['read']:.1f} to read,"
        f" {seconds['replay']:.1f} to replay, {seconds['figures']:.1f} for the figures"
    )


_INDENT: Any = {"subsequent_indent": " " * 24, "replace_whitespace": False}

_NOTES = (
    "",
    "ECE w., m.: 15 bins of equal width, of equal mass. chance: ECE m. of a perfect predictor at",
    "this number of labels. said, came: mean prediction, share accepted. gap: log-loss over the",
    "optimum, that of the best feature at each temperature. odds: log-odds. /T: after temperature.",
)


_SHORT = {
    "log_odds": "odds",
    "log_odds_scaled": "odds/T",
    "entropy_scaled": "entr./T",
    "margin_scaled": "marg./T",
}
"""Feature -> its head of a column, where it is not its name."""


def _coefficients(state: Mapping[str, Any], margin: str) -> Iterator[str]:
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield f"{margin}{name}"
            yield from _coefficients(value, margin + "  ")
        else:
            values = value if isinstance(value, list) else [value]
            numbers = " ".join(f"{each:>7.4g}" for each in values)
            yield from wrap(f"{margin}{name:<{24 - len(margin)}}{numbers}", 100, **_INDENT)


def _row(figures: Figures) -> str:
    return (
        f"{figures.labels:>9,}  {_number(figures.auc):>5}  {_number(figures.log_loss, 4):>8}"
        f"  {_number(figures.brier):>5}  {_number(figures.ece_width, 4):>6}"
        f"  {_number(figures.ece_mass, 4):>6}  {_number(figures.chance_mass, 4):>6}"
        f"  {_number(figures.predicted):>5}  {_number(figures.observed):>5}"
    )


def _beside(part: Part) -> str:
    gap = part.optimum.gap
    return (
        f"{_number(part.conditional.log_loss, 4):>8}  {_number(part.optimum.log_loss, 4):>7}"
        f"  {'' if gap != gap else f'{100 * gap:+.2f}%':>7}"
    )


def _number(value: float, digits: int = 3) -> str:
    """Without the zero before the point."""
    if value != value:
        return "-"
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text
