"""Line charts as SVG text: axes, lines, points, a title that is read aloud.

Rule: colours, fonts and strokes are the page's style sheet's, so that one figure serves light, dark
and paper; series differ by marker and dash as well as by colour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vllm_av.replay.report.html import Markup, tag

SERIES = 6
"""Styles that the style sheet has for series: ``s0`` to ``s5``; then they begin again."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 12.0, 12.0, 40.0
_LABEL = 11.0  # least distance of two labels at the ends of lines
_MARK = 6.0  # height of a mark on the x axis
_TINY = 1e-12


@dataclass(frozen=True)
class Series:
    """One line or one set of points.

    Attributes:
        name: for the legend and the titles of the points.
        x, y: equally many; where one is not finite there is a gap.
        low, high: the ends of a bar at each point, equally many, or none.
        style: number of its colour and marker.
        shade: from 1 down to 0, how strongly it is drawn.
        line, points: what is drawn. A line leaves the frame where its points do.
        stairs: a value holds until the next point's.
        end: a label at its last point.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: int = 0
    shade: float = 1.0
    line: bool = True
    points: bool = True
    stairs: bool = False
    end: str = ""


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        label: what it shows, with its unit.
        low, high: its ends; None: the data's, with some room.
        log: logarithmic (then all values are above 0).
        whole: ticks at whole numbers only.
    """

    label: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart, ``width`` by ``height`` units of its own.

    Attributes:
        title: what it shows, in a few words; read aloud and shown by the browser.
        description: what one sees, for those who do not.
        diagonal: draw y = x.
        marks: x of marks on the axis.
    """

    title: str
    description: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    diagonal: bool = False
    marks: Sequence[float] = field(default=())
    width: float = 320.0
    height: float = 260.0


def draw(chart: Chart) -> Markup:
    """The chart as an ``svg`` element."""
    right = _RIGHT + (40.0 if any(s.end for s in chart.series) else 0.0)
    x = _Scale.of(
        chart.x, [v for s in chart.series for v in s.x], _LEFT, chart.width - right, _wide(chart)
    )
    drawn = [v for s in chart.series for v in (*s.y, *s.low, *s.high)]
    y = _Scale.of(chart.y, drawn, chart.height - _BOTTOM, _TOP, 5)
    parts = [
        tag("title", chart.title),
        tag("desc", chart.description),
        *_axes(chart, x, y),
        *(
            tag("line", x1=x(at), x2=x(at), y1=y.start, y2=y.start - _MARK, class_="mark")
            for at in chart.marks
            if x.holds(at)
        ),
    ]
    if chart.diagonal:
        low, high = max(x.low, y.low), min(x.high, y.high)
        parts.append(tag("line", x1=x(low), y1=y(low), x2=x(high), y2=y(high), class_="diagonal"))
    for series in chart.series:
        parts.extend(_series(series, x, y))
    parts.extend(_ends(chart.series, x, y))
    return tag(
        "svg",
        parts,
        viewBox=f"0 0 {chart.width:g} {chart.height:g}",
        role="img",
        aria_label=f"{chart.title}. {chart.description}",
    )


def legend(series: Sequence[Series]) -> Markup:
    """What the colours and markers mean."""
    keys = []
    for each in series:
        style = f"s{each.style % SERIES}"
        mark = tag(
            "svg",
            tag("line", x1=1, x2=23, y1=6, y2=6, class_=f"line {style}") if each.line else "",
            _marker(12, 6, each.style, f"dot {style}") if each.points else "",
            viewBox="0 0 24 12",
            aria_hidden="true",
        )
        keys.append(tag("li", mark, tag("span", each.name)))
    return tag("ul", keys, class_="legend")


# -- scales


@dataclass(frozen=True)
class _Scale:
    """From values to units of the drawing; ``start`` and ``stop`` are where low and high lie."""

    low: float
    high: float
    start: float
    stop: float
    log: bool
    ticks: tuple[float, ...]

    @classmethod
    def of(
        cls, axis: Axis, values: Sequence[float], start: float, stop: float, ticks: int
    ) -> "_Scale":
        finite = [v for v in values if math.isfinite(v) and (v > 0.0 or not axis.log)]
        low = min(finite, default=1.0 if axis.log else 0.0) if axis.low is None else axis.low
        high = max(finite, default=1.0) if axis.high is None else axis.high
        if axis.log:
            high = max(high, low * 1.01)
            return cls(low, high, start, stop, True, _log_ticks(low, high))
        if high - low < _TINY * max(1.0, abs(high)):
            low, high = low - 0.5, high + 0.5
        room = 0.06 * (high - low)
        low = low - room if axis.low is None else low
        high = high + room if axis.high is None else high
        return cls(low, high, start, stop, False, _ticks(low, high, ticks, axis.whole))

    def __call__(self, value: float) -> float:
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.stop - self.start)

    def holds(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        room = 1e-9 * (self.high - self.low)
        return self.low - room <= value <= self.high + room


def _ticks(low: float, high: float, about: int, whole: bool) -> tuple[float, ...]:
    """Round numbers from low to high, ``about`` many."""
    raw = (high - low) / max(about, 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1.0, 2.0, 5.0, 10.0) if unit * m >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(round(i * step, 12) for i in range(first, last + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 10, 100 ... within; less than two of them: 1, 2, 5, 10 ..., too."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = tuple(10.0**p for p in powers if low * (1 - 1e-9) <= 10.0**p <= high * (1 + 1e-9))
    if len(tens) > 2:
        return tens
    more = (m * 10.0**p for p in powers for m in (1.0, 2.0, 5.0))
    return tuple(t for t in more if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)) or (low,)


def _wide(chart: Chart) -> int:
    return 5 if chart.width < 400 else 9


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.5g}".replace("-", "−")


# -- drawing


def _axes(chart: Chart, x: _Scale, y: _Scale) -> list[Markup]:
    parts = []
    for tick in y.ticks:
        parts.append(tag("line", x1=x.start, x2=x.stop, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(
            tag("text", _number(tick), x=x.start - 5, y=y(tick) + 3.5, class_="tick right")
        )
    for tick in x.ticks:
        parts.append(tag("line", x1=x(tick), x2=x(tick), y1=y.start, y2=y.stop, class_="grid"))
        parts.append(tag("text", _number(tick), x=x(tick), y=y.start + 14, class_="tick middle"))
    middle = (x.start + x.stop) / 2
    parts.append(tag("text", chart.x.label, x=middle, y=chart.height - 8, class_="label middle"))
    turned = f"rotate(-90 11 {(y.start + y.stop) / 2:.1f})"
    parts.append(
        tag(
            "text", chart.y.label, x=11, y=(y.start + y.stop) / 2, transform=turned,
            class_="label middle",
        )
    )  # fmt: skip
    parts.append(
        tag(
            "path", d=f"M{x.start:.1f} {y.stop:.1f}V{y.start:.1f}H{x.stop:.1f}", class_="axis",
        )
    )  # fmt: skip
    return parts


def _series(series: Series, x: _Scale, y: _Scale) -> list[Markup]:
    style = f"s{series.style % SERIES}"
    opacity = None if series.shade >= 1.0 else series.shade
    parts = []
    inside = [x.holds(a) and y.holds(b) for a, b in zip(series.x, series.y, strict=True)]
    if series.line and (path := _path(series, x, y)):
        parts.append(tag("path", d=path, class_=f"line {style}", opacity=opacity))
    for a, low, high, seen in zip(series.x, series.low, series.high, inside, strict=False):
        if seen and math.isfinite(low + high):
            ends = [min(max(v, y.low), y.high) for v in (low, high)]
            parts.append(
                tag("line", x1=x(a), x2=x(a), y1=y(ends[0]), y2=y(ends[1]), class_=f"bar {style}")
            )
    if series.points:
        for a, b, seen in zip(series.x, series.y, inside, strict=True):
            if seen:
                title = f"{series.name}: {_number(a)}, {_number(b)}"
                parts.append(_marker(x(a), y(b), series.style, f"dot {style}", title))
    return parts


def _path(series: Series, x: _Scale, y: _Scale) -> str:
    path, pen = "", "M"
    for a, b in zip(series.x, series.y, strict=True):
        if x.holds(a) and math.isfinite(b):
            at = x(a), y(min(max(b, y.low), y.high))
            across = f"H{at[0]:.1f}" if series.stairs and pen == "L" else ""
            path += f"{across}{pen}{at[0]:.1f} {at[1]:.1f}"
            pen = "L"
        else:
            pen = "M"
    return path


def _marker(x: float, y: float, style: int, class_: str, title: str = "") -> Markup:
    """A circle, square, diamond or triangle, by the number of the style."""
    inner = tag("title", title) if title else ""
    shape = style % 4
    if shape == 0:
        return tag("circle", inner, cx=x, cy=y, r=3, class_=class_)
    if shape == 1:
        return tag("rect", inner, x=x - 2.7, y=y - 2.7, width=5.4, height=5.4, class_=class_)
    corners = {
        2: ((0, -3.9), (3.9, 0), (0, 3.9), (-3.9, 0)),
        3: ((0, -3.7), (3.7, 2.9), (-3.7, 2.9)),
    }[shape]
    points = " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners)
    return tag("polygon", inner, points=points, class_=class_)


def _ends(series: Sequence[Series], x: _Scale, y: _Scale) -> list[Markup]:
    """The labels at the lines' ends, moved apart where lines end close together."""
    found = []
    for each in series:
        seen = [(a, b) for a, b in zip(each.x, each.y, strict=True) if x.holds(a) and y.holds(b)]
        if each.end and seen:
            found.append((y(seen[-1][1]), each))
    found.sort(key=lambda pair: pair[0])
    parts, least = [], y.stop
    room = y.start - len(found) * _LABEL  # the highest that the first may lie
    for number, (at, each) in enumerate(found):
        least = max(least, min(at, room + number * _LABEL))
        style = f"end s{each.style % SERIES}"
        parts.append(tag("text", each.end, x=x.stop + 5, y=least + 3.5, class_=style))
        least += _LABEL
    return parts
