"""The figures of a report: what is drawn, and the same as a table beside it.

Rule: every figure has a title and a description in words, and its numbers in a table.
"""

import math
from collections.abc import Sequence

from vllm_av.replay.report.charts import Axis, Chart, Series, draw, legend
from vllm_av.replay.report.coefficients import Path
from vllm_av.replay.report.html import Content, Markup, table, tag
from vllm_av.replay.report.model import GroupFit
from vllm_av.replay.report.predictors import Judged, Predictor
from vllm_av.replay.report.words import number

Styles = dict[str, int]
"""Predictor's key -> number of its colour, the same in every figure."""

_FADE = 0.6
"""How much fainter the last of several ordered lines is than the first."""
MOST_LINES = 16
"""Draft positions in one figure of coefficients."""


def figure(heading: str, chart: Chart, numbers: Markup, *, level: str = "h3") -> Markup:
    """A drawing under its heading, with its numbers folded up below."""
    return tag(
        "figure",
        tag(level, heading),
        draw(chart),
        tag("details", tag("summary", "Numbers"), numbers),
    )


def group(figures: Sequence[Markup], *, large: bool = False) -> Markup:
    return tag("div", figures, class_="figures large" if large else "figures")


def key(predictors: Sequence[Predictor], styles: Styles) -> Markup:
    """The legend of the figures with predictors."""
    return legend([Series(p.title, (), (), style=styles[p.key]) for p in predictors])


def reliability(
    heading: str,
    judged: Sequence[tuple[Predictor, Judged]],
    styles: Styles,
    *,
    survival: bool = False,
    level: str = "h3",
    width: float = 280.0,
) -> Markup:
    """Predicted against observed, in bins of equally many labels."""
    what = "survival" if survival else "acceptance"
    shown = [(p, j) for p, j in judged if j.figures.labels]
    chart = Chart(
        title=f"Reliability: {heading}",
        description="; ".join(
            f"{p.title}: predicted {number(j.figures.predicted)}, observed "
            f"{number(j.figures.observed)}, ECE {number(j.figures.ece_mass, 4)}"
            for p, j in shown
        )
        or "no labels",
        x=Axis(f"predicted {what}", 0.0, 1.0),
        y=Axis(f"observed {what}", 0.0, 1.0),
        series=[
            Series(
                p.title, j.bins.predicted, j.bins.observed, j.bins.low, j.bins.high,
                style=styles[p.key],
            )
            for p, j in shown
        ],
        diagonal=True,
        width=width,
        height=width - 6.0,  # the axes' labels apart, both axes are equally long
    )  # fmt: skip
    rows: list[Sequence[Content]] = [
        (p.title, number(x), number(y), f"{number(low)} to {number(high)}", f"{labels:,}")
        for p, j in shown
        for x, y, low, high, labels in zip(
            j.bins.predicted, j.bins.observed, j.bins.low, j.bins.high, j.bins.labels, strict=True
        )
    ]
    head = ("Predictor", "Predicted", "Observed", "95% interval", "Labels")
    return figure(heading, chart, table(chart.title, head, rows, quiet=True), level=level)


def loss_over_time(predictors: Sequence[Predictor], styles: Styles) -> Markup:
    """The log-loss between points in time."""
    series = [
        Series(p.title, p.loss_steps, p.losses, style=styles[p.key], points=False)
        for p in predictors
        if p.loss_steps
    ]
    ends = [p.losses[-1] for p in predictors if p.loss_steps]
    # What begins far off would press the rest flat; its own start may leave the frame.
    every = sorted(v for s in series for v in s.y if math.isfinite(v))
    top = every[int(0.97 * (len(every) - 1))] if every else 1.0
    highest = max([top, *(1.3 * e for e in ends if math.isfinite(e))])
    chart = Chart(
        title="Log-loss over time",
        description="; ".join(
            f"{s.name}: {number(s.y[0])} at first, {number(s.y[-1])} at last" for s in series
        )
        or "no labels",
        x=Axis("decode step", log=True),
        y=Axis("log-loss, nats", high=highest if every and every[-1] > highest else None),
        series=series,
        width=460,
        height=280,
    )
    steps = max((p.loss_steps for p in predictors), key=len, default=())
    rows: list[Sequence[Content]] = [
        (f"{step:,.0f}", *(number(p.losses[i]) if i < len(p.losses) else "–" for p in predictors))
        for i, step in enumerate(steps)
    ]
    head = ("Up to step", *(p.title for p in predictors))
    return figure("Log-loss over time", chart, table(chart.title, head, rows, quiet=True))


def coefficient_paths(title: str, paths: Sequence[Path]) -> list[Markup]:
    """One figure a kind of coefficient: its values against the decode step."""
    figures = []
    for path in paths:
        several = len(path.names) > 1
        series = [
            Series(
                name,
                path.steps,
                [values[i] for values in path.values],
                style=0 if path.ordered else i,
                shade=1.0 - _FADE * i / max(len(path.names) - 1, 1) if path.ordered else 1.0,
                points=len(path.steps) == 1,
                stairs=True,
                end=name if several else "",
            )
            for i, name in enumerate(path.names[:MOST_LINES])
        ]
        chart = Chart(
            title=f"{title}: {path.title} over time",
            description="; ".join(
                f"{s.name} from {number(s.y[0])} to {number(s.y[-1])}" for s in series
            ),
            x=Axis("decode step", log=True),
            y=Axis(path.title),
            series=series,
            marks=path.refits,
            width=380,
            height=270,
        )
        rows: list[Sequence[Content]] = [
            (f"{step:,.0f}", *map(number, values[:MOST_LINES]))
            for step, values in zip(path.steps, path.values, strict=True)
        ]
        figures.append(
            figure(
                f"{title}: {path.title}",
                chart,
                table(chart.title, ("After step", *path.names[:MOST_LINES]), rows, quiet=True),
            )
        )
    return figures


def by_position(predictors: Sequence[Predictor], styles: Styles) -> list[Markup]:
    """AUC and log-loss against draft position."""
    positions = max((len(p.positions) for p in predictors), default=0)
    found = []
    for name in ("AUC", "Log-loss"):
        series = [
            Series(
                p.title,
                list(range(len(p.positions))),
                [j.figures.auc if name == "AUC" else j.figures.log_loss for j in p.positions],
                style=styles[p.key],
            )
            for p in predictors
        ]
        chart = Chart(
            title=f"{name} by draft position",
            description="; ".join(
                f"{s.name}: {', '.join(map(number, s.y[:MOST_LINES]))}" for s in series
            ),
            x=Axis("draft position", -0.3, positions - 0.7, whole=True),
            y=Axis("AUC" if name == "AUC" else "log-loss, nats"),
            series=series,
            width=380,
            height=250,
        )
        rows: list[Sequence[Content]] = [
            (str(k), *(number(s.y[k]) for s in series)) for k in range(positions)
        ]
        head = ("Position", *(p.title for p in predictors))
        found.append(figure(chart.title, chart, table(chart.title, head, rows, quiet=True)))
    return found


def fits(heading: str, rows: Sequence[GroupFit], what: str, at: Sequence[float]) -> list[Markup]:
    """Slope with its 95% interval and intercepts of fits to groups that have a number.

    Args:
        heading: of what the groups are.
        rows: one a group.
        what: the number is, for the axis.
        at: [groups], the number.
    """
    slopes = [row.slope for row in rows]
    errors = [1.96 * row.error for row in rows]
    slope = Series(
        "slope", at, slopes,
        [s - e for s, e in zip(slopes, errors, strict=True)],
        [s + e for s, e in zip(slopes, errors, strict=True)],
    )  # fmt: skip
    depth = min(max(len(row.intercepts) for row in rows), MOST_LINES)
    intercepts = [
        Series(
            f"position {k}", at, [row.intercepts[k] for row in rows], style=0,
            shade=1.0 - _FADE * k / max(depth - 1, 1), points=False, end=str(k),
        )
        for k in range(depth)
    ]  # fmt: skip
    found = []
    for name, series in (("slope", [slope]), ("intercepts", intercepts)):
        chart = Chart(
            title=f"{name.capitalize()} by {heading}",
            description="; ".join(f"{s.name}: {', '.join(map(number, s.y))}" for s in series),
            x=Axis(what),
            y=Axis(name),
            series=series,
            width=380,
            height=260,
        )
        numbers: list[Sequence[Content]] = [
            (row.name, *(number(s.y[i]) for s in series)) for i, row in enumerate(rows)
        ]
        head = (heading.capitalize(), *(s.name for s in series))
        found.append(figure(chart.title, chart, table(chart.title, head, numbers, quiet=True)))
    return found
