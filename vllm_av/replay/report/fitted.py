"""The sections of the page about offline fits, and about how everything was measured.

Rule: as in :mod:`vllm_av.replay.report.sections`.
"""

import math
from collections.abc import Sequence

from vllm_av.replay.metrics import BINS
from vllm_av.replay.report import figures as drawn
from vllm_av.replay.report.features import FEATURES
from vllm_av.replay.report.html import Content, Markup, shortened, table, tag
from vllm_av.replay.report.model import FeatureRow, GroupFit, RegimeRow, Report
from vllm_av.replay.report.offline import LEAST_LABELS
from vllm_av.replay.report.style import Style
from vllm_av.replay.report.words import NOTHING, count, difference, number, share
from vllm_av.replay.scoring import FROM_STEP

MOST_COLUMNS = 16
"""Draft positions across a table; all of them are in the JSON."""

_TITLES = {f.key: (f.title, f.scaled) for f in FEATURES}
_SCALED = {True: "scaled", False: "unscaled", None: ""}


def features(report: Report, style: Style) -> Content:
    """The table of features, and the same within each temperature."""
    fit_to = "the first half of the decode steps" if report.parted else "the whole trace"
    parts: list[Content] = [
        tag(
            "p",
            "Each feature is a number of the drafter's distribution q, or of its confidence head. "
            "Fitted, it predicts by a logistic regression with one slope and an intercept for each "
            f"draft position, fitted offline to {fit_to}. Scaled features are of q after "
            "temperature (0 counts as 1), unscaled ones as if the temperature were 1. A feature is "
            "lossless if it does not depend on the token that was drawn: trimming by one that does "
            "would change the output's distribution. The best lossless fit of each column is "
            "marked.",
        ),
        _features(report.features),
    ]
    if len(report.regimes) > 1:
        parts += [
            tag("h3", "Within each temperature"),
            tag("p", "Fitted to each temperature alone. Lossless features only."),
            _within(report, "Log-loss", [(r, r.log_loss) for r in report.regimes], lowest=True),
            _within(report, "AUC", [(r, r.auc) for r in report.regimes], lowest=False),
        ]
    return parts


def _features(rows: Sequence[FeatureRow]) -> Markup:
    fair = [r.figures for r in rows if r.lossless and r.fitted]
    best = (
        max((f.auc for f in fair if math.isfinite(f.auc)), default=math.nan),
        min((f.log_loss for f in fair if math.isfinite(f.log_loss)), default=math.nan),
        min((f.ece_mass for f in fair if math.isfinite(f.ece_mass)), default=math.nan),
    )
    head = (
        "Feature", "Temperature", "Lossless?", "AUC", "Log-loss", "ECE", "by chance",
        "Predicted", "Observed", "Labels",
    )  # fmt: skip
    cells = []
    for r in rows:
        f = r.figures
        ours = r.lossless and r.fitted
        cells.append(
            (
                r.title, _SCALED[r.scaled], "yes" if r.lossless else "no",
                _marked(f.auc, best[0], ours), _marked(f.log_loss, best[1], ours),
                _marked(f.ece_mass, best[2], ours), number(f.chance_mass, 4),
                number(f.predicted, 4), number(f.observed, 4), count(f.labels),
            )
        )  # fmt: skip
    return table("Features; ECE of equal mass", head, cells, words=3)


def _marked(value: float, best: float, may_be: bool) -> Content:
    shown = number(value, 4)
    return tag("span", shown, class_="best") if may_be and value == best else shown


def _within(
    report: Report,
    what: str,
    rows: Sequence[tuple[RegimeRow, dict[str, float]]],
    *,
    lowest: bool,
) -> Markup:
    keys = [r.key for r in report.features if r.lossless and r.fitted]
    head = ["Temperature", "Labels"]
    head += [_heading(*_TITLES[key]) for key in keys]
    cells = []
    for regime, values in rows:
        known = [values[key] for key in keys if math.isfinite(values[key])]
        best = (min if lowest else max)(known, default=math.nan)
        cells.append(
            [
                regime.name,
                count(regime.labels),
                *(_marked(values[key], best, True) for key in keys),
            ]
        )
    return table(f"{what} by temperature", head, cells)


def _heading(title: str, scaled: bool | None) -> str:
    return title if scaled is None else f"{title}, {_SCALED[scaled]}"


def slopes(report: Report, style: Style) -> Content:
    """What a shared slope costs."""
    if not report.slopes:
        return tag(
            "p", "This needs two draft positions or more, with labels of both kinds.",
            class_="quiet",
        )  # fmt: skip
    spans = [("", 2), ("AUC", 3), ("Log-loss", 4)]
    head = (
        "Feature", "Temperature", "shared", "own", "difference", "shared", "own", "difference",
        "± error",
    )  # fmt: skip
    rows = [
        (
            r.title, _SCALED[r.scaled], number(r.shared.auc, 4), number(r.own.auc, 4),
            difference(r.own.auc - r.shared.auc), number(r.shared.log_loss, 4),
            number(r.own.log_loss, 4), difference(r.own.log_loss - r.shared.log_loss),
            number(r.error, 4),
        )
        for r in report.slopes
    ]  # fmt: skip
    depth = min(report.info.num_speculative_tokens, MOST_COLUMNS)
    lines = [
        (r.title, _SCALED[r.scaled], number(r.slope), *map(number, r.slopes[:depth]))
        for r in report.slopes
    ]
    return [
        tag(
            "p",
            "One slope for all draft positions needs fewer labels where they are rare. One for "
            "each position is worth having where it lowers the log-loss by more than chance: by "
            "several errors.",
        ),
        table("Shared slope against a slope for each position", head, rows, spans=spans, words=2),
        table(
            "The slopes",
            ("Feature", "Temperature", "Shared", *map(str, range(depth))),
            lines,
            spans=[("", 3), ("Draft position", depth)],
            words=2,
        ),
    ]


def groups(report: Report, style: Style) -> Content:
    """Coefficients fitted to each workload and each temperature alone."""
    parts: list[Content] = []
    if report.workloads:
        slope, intercept = report.correlations
        parts += [
            tag("h3", "By workload"),
            _fits("Workload", report.workloads, "logit(q_max), unscaled"),
        ]
        if math.isfinite(slope + intercept):
            parts.append(
                tag(
                    "p",
                    f"Over these workloads the slope correlates with the drafter's entropy at "
                    f"r = {number(slope, 2)}, the first intercept at r = {number(intercept, 2)}.",
                )
            )
    else:
        parts.append(tag("p", "No workload was recorded.", class_="quiet"))
    parts.append(tag("h3", "By temperature"))
    for key, rows in report.temperatures.items():
        title, scaled = _TITLES[key]
        parts.append(_fits("Temperature", rows, f"{title}, {_SCALED[scaled]}"))
        at = [(float(row.name), row) for row in rows if _is_number(row.name)]
        at = [(t, row) for t, row in at if math.isfinite(row.slope)]
        if len(at) > 1:
            heading = f"temperature, {_SCALED[scaled]} feature"
            found = drawn.fits(heading, [r for _, r in at], "temperature", [t for t, _ in at])
            parts.append(drawn.group(found, large=True))
    return parts


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:  # a bin of several temperatures
        return False


def _fits(what: str, rows: Sequence[GroupFit], feature: str) -> Markup:
    depth = min(max(len(row.intercepts) for row in rows), MOST_COLUMNS)
    entropy = any(math.isfinite(row.entropy) for row in rows)
    head = [what, "Labels", "Accepted", *(["Entropy"] if entropy else []), "Slope", "± error"]
    cells = [
        [
            shortened(row.name), count(row.labels), share(row.rate),
            *([number(row.entropy)] if entropy else []),
            number(row.slope), number(row.error), *map(number, row.intercepts[:depth]),
        ]
        for row in rows
    ]  # fmt: skip
    spans = [("", len(head)), ("Intercept of draft position", depth)]
    caption = f"Fits of {feature}, to each {what.lower()} alone"
    return table(caption, [*head, *map(str, range(depth))], cells, spans=spans)


def method(report: Report, style: Style) -> Content:
    """Definitions, in the words of the field."""
    lines = [*_DEFINITIONS, _judged(report)]
    if report.every > 1:
        lines.append(
            "To save time, the fits (features, slopes, workloads, temperatures, offline optimum) "
            f"were made from one draft of a request in {report.every}, drawn at random; those of "
            "features and slopes were judged on such, too. Everything else is of all labels."
        )
    return tag("ul", [tag("li", line) for line in lines], class_="plain small")


def _judged(report: Report) -> str:
    if not report.parted:
        return "Everything is judged on the whole trace, cold start and fitted labels included."
    return (
        "Scorers that learn run through the trace from its start, predicting each step before "
        "they see its labels. All figures but those over time are of the second half of the decode "
        f"steps, from step {FROM_STEP} on at the earliest; offline fits were made from the first "
        "half. Scorers that learn go on learning in the second half."
    )


_DEFINITIONS = (
    (
        "A label is known where the target verified a draft and accepted all drafts before it: "
        "the accepted ones and the first rejected one of each step."
    ),
    (
        "Rows are masked where the target applies what the drafter does not know (penalties, "
        "grammars, ...). Masked rows, and rows whose logits were no distribution, teach no scorer "
        "and are in no figure, nor are the drafts after them in the same step."
    ),
    (
        "AUC: the chance that an accepted draft has a higher prediction than a rejected one; 0.5 "
        "is guessing."
    ),
    (
        "Log-loss: mean of −log of the probability given to what happened, in nats. It falls with "
        "better ranking and with better calibration."
    ),
    "Brier score: mean squared difference of prediction and outcome.",
    (
        f"ECE: the labels in {BINS} bins by prediction, equally many in each (equal mass) or each "
        "as wide as the others (equal width); the mean distance between predicted and observed, "
        "weighted by labels. “By chance” is what a perfect predictor would show at so many "
        "labels: a smaller ECE says nothing."
    ),
    (
        "Survival: the product of the conditional probabilities up to a position, against whether "
        "the target accepted everything up to there; over the drafts that it verified."
    ),
    (
        "Offline optimum: of the lossless features that every row has, each fitted to each "
        "temperature alone, the one with the lowest log-loss there."
    ),
    (
        "± error is one standard error, as if the labels were independent. Groups with fewer than "
        f"{LEAST_LABELS} labels, or labels of one kind, have no fit ({NOTHING})."
    ),
)
