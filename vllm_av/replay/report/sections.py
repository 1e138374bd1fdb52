"""The sections of the page about the trace and about the predictors.

Rule: a sentence is computed from the figures that stand beside it, and says a loss as plainly as a
gain.
"""

import math
from collections.abc import Sequence

from vllm_av.replay.report import figures as drawn
from vllm_av.replay.report.build import HEAD, predictor
from vllm_av.replay.report.coefficients import paths_of
from vllm_av.replay.report.facts import Count
from vllm_av.replay.report.html import Content, Markup, shortened, table, tag
from vllm_av.replay.report.model import Report
from vllm_av.replay.report.predictors import Judged
from vllm_av.replay.report.says import sentences
from vllm_av.replay.report.style import Style
from vllm_av.replay.report.words import count, difference, joined, number, share

FEW = 0.01
"""A chance ECE above this makes a small ECE impossible to tell: the page says so."""
MOST_ROWS = 32
"""Of a table of groups; all of them are in the JSON."""
_MOST_REGIME_FIGURES = 12


def title(report: Report) -> str:
    """What the page is about."""
    return f"{report.scorer} on {_pair(report) or report.source}"


def _pair(report: Report) -> str:
    info = report.info
    draft = info.draft or info.drafter
    return " + ".join(dict.fromkeys(part for part in (info.target, draft) if part))


def summary(report: Report) -> Markup:
    """The first lines: how many labels, how good, against what."""
    return tag("ul", [tag("li", line) for line in sentences(report)], class_="plain")


# -- the trace


def the_trace(report: Report, style: Style) -> Content:
    """What there is, what was left out and why, and where numbers are few."""
    facts, info = report.facts, report.info
    said = [
        ("Pair", _pair(report)),
        ("Method", info.method or ""),
        ("Draft sampling", info.draft_sample_method or ""),
        ("Served by", info.scorer or ""),
        ("Vocabulary", count(info.vocabulary) if info.vocabulary else ""),
        ("vLLM", info.vllm or ""),
        ("vllm_av", info.vllm_av or ""),
        ("Decode steps", count(facts.steps)),
        ("Requests", count(facts.requests)),
        ("Draft tokens", f"{count(facts.rows)}, {count(facts.total.verified)} verified"),
        ("Labels", _labels(report)),
        ("Censoring", _CENSORING[info.censoring]),
        ("Masked", _masked(report)),
        ("Not finite", _not_finite(report)),
    ]
    parts: list[Content] = [
        tag("dl", [[tag("dt", k), tag("dd", v)] for k, v in said if v], class_="facts"),
        _warnings(report),
        *(tag("p", note, class_="quiet small") for note in report.notes),
        _counts("Draft position", facts.positions),
        _counts("Temperature", facts.temperatures),
    ]
    if facts.workloads:
        parts.append(_counts("Workload", facts.workloads))
    return parts


_CENSORING = {
    "none": "none: every scheduled draft was verified",
    "budget": "by the budget: the target saw the drafts that it admitted, so labels are those of "
    "drafts that looked likely",
}


def _labels(report: Report) -> str:
    total = report.facts.total
    if not total.labels:
        return "none"
    return f"{count(total.labels)}, {share(total.rate)} accepted"


def _masked(report: Report) -> str:
    facts = report.facts
    if facts.masked_rows is None:
        return "not recorded: what only the target applied may have made labels wrong"
    if not facts.masked_rows:
        return "no rows"
    reasons = joined([f"{reason} {count(rows)}" for reason, rows in facts.masked.items()])
    return (
        f"{count(facts.masked_rows)} rows, whose target applies what the drafter does not know: "
        f"{reasons}"
    )


def _not_finite(report: Report) -> str:
    rows = report.facts.not_finite
    return f"{count(rows)} rows whose logits were no distribution" if rows else "no rows"


def _warnings(report: Report) -> Markup:
    facts = report.facts
    lines = []
    for what, groups in (
        ("position", facts.positions),
        ("temperature", facts.temperatures),
        ("workload", facts.workloads),
    ):
        few = [g for g in groups if not g.chance <= FEW]  # NaN, where there are no labels, too
        if few:
            shown = [f"{shortened(g.name)} ({count(g.labels)})" for g in few[:8]]
            if len(few) > len(shown):
                shown.append(f"{len(few) - len(shown)} more")
            lines.append(
                f"Few labels by {what}: {joined(shown)}. There chance alone gives a perfect "
                f"predictor an ECE above {FEW:g}."
            )
    if facts.spared:
        lines.append(
            f"{count(facts.spared)} labels are in no figure: they, or drafts before them in the "
            "same step, are masked or not finite."
        )
    if not report.parted:
        lines.append(
            f"The trace is too short to part: {count(facts.steps)} decode steps. Everything is "
            "judged on all of it, the scorers' cold start included, and fits are judged on the "
            "labels that they were made from."
        )
    return tag("div", [tag("p", line) for line in lines], class_="warn") if lines else Markup()


def _counts(what: str, groups: Sequence[Count]) -> Markup:
    caption = f"By {what.lower()}"
    if len(groups) > MOST_ROWS:
        caption += f": the {MOST_ROWS} with the most labels, of {count(len(groups))}"
        largest = sorted(groups, key=lambda g: -g.labels)[:MOST_ROWS]
        groups = [g for g in groups if g in largest]
    entropy = any(math.isfinite(g.entropy) for g in groups)
    head = [what, "Drafts", "Verified", "Labels", "Accepted", "ECE by chance"]
    rows = []
    for g in groups:
        row = [
            shortened(g.name), count(g.drafts), count(g.verified), count(g.labels), share(g.rate),
            number(g.chance, 4),
        ]  # fmt: skip
        rows.append([*row, number(g.entropy)] if entropy else row)
    if entropy:
        head.append("Entropy, nats")
    return table(caption, head, rows)


# -- predictors


def calibration(report: Report, style: Style) -> Content:
    """Reliability, overall and within each temperature regime."""
    everyone = report.predictors
    parts: list[Content] = [
        tag(
            "p",
            "A budget is right if predictions are right on average wherever it looks. Each point "
            "holds a fifteenth of the labels; on the dashed line, predicted and observed agree. "
            "Bars are 95% intervals.",
        ),
        drawn.key(style.drawn, style.numbers),
        drawn.group(
            [
                drawn.reliability(
                    "Conditional probability",
                    [(p, p.conditional) for p in style.drawn],
                    style.numbers,
                    width=380,
                ),
                drawn.reliability(
                    "Survival product",
                    [(p, p.survival) for p in style.drawn],
                    style.numbers,
                    survival=True,
                    width=380,
                ),
            ],
            large=True,
        ),
        _quality(
            "Conditional probability: accepted, given that all drafts before it were",
            [(p.title, p.conditional) for p in everyone],
        ),
        _quality(
            "Survival product: accepted up to here, over all verified drafts",
            [(p.title, p.survival) for p in everyone],
        ),
    ]
    regimes = len(report.facts.temperatures)
    if regimes < 2:
        return parts
    shown = sorted(
        sorted(range(regimes), key=lambda i: -report.facts.temperatures[i].labels)[
            :_MOST_REGIME_FIGURES
        ]
    )
    for what, survival in (("Conditional probability", False), ("Survival product", True)):
        parts.append(tag("h3", f"{what} by temperature"))
        parts.append(drawn.key(style.drawn, style.numbers))
        parts.append(
            drawn.group(
                [
                    drawn.reliability(
                        f"Temperature {report.facts.temperatures[i].name}",
                        [
                            (p, (p.survival_regimes if survival else p.regimes)[i])
                            for p in style.drawn
                        ],
                        style.numbers,
                        survival=survival,
                        level="h4",
                    )
                    for i in shown
                ]
            )
        )
    parts.append(_by_regime(report))
    return parts


def _quality(caption: str, judged: Sequence[tuple[str, Judged]]) -> Markup:
    head = (
        "Predictor", "Labels", "Predicted", "Observed", "AUC", "Log-loss", "Brier",
        "ECE, equal mass", "by chance", "ECE, equal width", "by chance",
    )  # fmt: skip
    rows = []
    for name, each in judged:
        f = each.figures
        rows.append(
            (
                name, count(f.labels), number(f.predicted, 4), number(f.observed, 4),
                number(f.auc, 4), number(f.log_loss, 4), number(f.brier, 4),
                number(f.ece_mass, 4), number(f.chance_mass, 4),
                number(f.ece_width, 4), number(f.chance_width, 4),
            )
        )  # fmt: skip
    return table(caption, head, rows)


def _by_regime(report: Report) -> Markup:
    spans = [("", 3), *((p.title, 3) for p in report.predictors)]
    head = ["Temperature", "Labels", "ECE by chance"]
    head += ["AUC", "Log-loss", "ECE"] * len(report.predictors)
    rows = []
    for i, regime in enumerate(report.predictors[0].regimes):
        f = regime.figures
        row = [regime.name, count(f.labels), number(f.chance_mass, 4)]
        for p in report.predictors:
            f = p.regimes[i].figures
            row += [number(f.auc), number(f.log_loss, 4), number(f.ece_mass, 4)]
        rows.append(row)
    caption = "Conditional probability by temperature; ECE of equal mass"
    return table(caption, head, rows, spans=spans)


def over_time(report: Report, style: Style) -> Content:
    """Losses and coefficients as the trace went on."""
    learning = [p for p in style.drawn if p.history]
    parts: list[Content] = [
        tag(
            "p",
            "Each draft was predicted before its label was known. The log-loss of a point is the "
            "mean since the point before. Marks on the axis of coefficients are refits.",
        ),
        drawn.key(style.drawn, style.numbers),
        drawn.group([drawn.loss_over_time(style.drawn, style.numbers)], large=True),
    ]
    for p in learning:
        last = p.history[-1][1]
        counted = [f"{last[key]} {key}" for key in ("refits", "undone", "restarts") if key in last]
        parts.append(tag("h3", f"Coefficients of {p.title}"))
        if counted:
            parts.append(tag("p", f"At the end: {joined(counted)}.", class_="quiet small"))
        parts.append(drawn.group(drawn.coefficient_paths(p.title, paths_of(p.history)), large=True))
    if not learning:
        parts.append(tag("p", "None of these predictors learns.", class_="quiet"))
    return parts


def by_position(report: Report, style: Style) -> Content:
    """How well each predictor ranks within a draft position."""
    spans = [("", 3), *((p.title, 3) for p in report.predictors)]
    head = ["Position", "Labels", "Accepted", *["AUC", "Log-loss", "ECE"] * len(report.predictors)]
    rows = []
    for k, position in enumerate(report.predictors[0].positions[:MOST_ROWS]):
        f = position.figures
        row = [str(k), count(f.labels), share(f.observed)]
        for p in report.predictors:
            own = p.positions[k].figures
            row += [number(own.auc), number(own.log_loss, 4), number(own.ece_mass, 4)]
        rows.append(row)
    return [
        tag(
            "p",
            "A budget rarely trims the first draft, whose survival is the highest of its request: "
            "what a predictor knows of the later ones decides.",
        ),
        drawn.key(style.drawn, style.numbers),
        drawn.group(drawn.by_position(style.drawn, style.numbers), large=True),
        table(
            "Conditional probability by draft position; ECE of equal mass", head, rows, spans=spans
        ),
        _quality("Without the first position", [(p.title, p.later) for p in report.predictors])
        if report.info.num_speculative_tokens > 1
        else "",
        _leaders(report),
    ]


def _leaders(report: Report) -> Content:
    """Where the head and the scorer in question lead."""
    head, scorer = predictor(report, HEAD), predictor(report, report.scorer)
    if head is None or scorer is None or head is scorer:
        return ""
    gaps = {
        k: own.figures.auc - its.figures.auc
        for k, (own, its) in enumerate(zip(scorer.positions, head.positions, strict=True))
    }
    known = {k: gap for k, gap in gaps.items() if math.isfinite(gap)}
    if not known:
        return ""
    ahead = [str(k) for k, gap in known.items() if gap > 0]
    if len(ahead) in (0, len(known)):
        where = f"{'no' if not ahead else 'every'} position"
    else:
        where = f"position{'s' if ahead[1:] else ''} {joined(ahead)} of {len(known)}"
    last = max(known)
    return tag(
        "p",
        f"{scorer.title} ranks better than the head at {where}"
        f" (position {last}: {difference(known[last])} AUC).",
    )
