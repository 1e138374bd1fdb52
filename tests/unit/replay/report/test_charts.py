"""Points lie where their values say, and nothing lies outside the frame."""

import itertools
import math
import re

import pytest

from tests.unit.replay.report.reading import Element, parse
from vllm_av.replay.report.charts import Axis, Chart, Series, draw, legend

NAN = math.nan


def drawn(*series: Series, x: Axis | None = None, y: Axis | None = None, **more: object) -> Element:
    chart = Chart("Title", "Words.", x or Axis("x"), y or Axis("y"), series, **more)  # type: ignore[arg-type]
    (svg,) = parse(draw(chart)).children
    return svg


def circles(svg: Element) -> list[tuple[float, float]]:
    return [(float(c.attributes["cx"]), float(c.attributes["cy"])) for c in svg.all("circle")]


def test_a_linear_axis_keeps_proportions() -> None:
    svg = drawn(
        Series("s", [0.0, 0.5, 1.0], [0.0, 0.25, 1.0]), x=Axis("x", 0, 1), y=Axis("y", 0, 1)
    )
    (x0, y0), (x1, y1), (x2, y2) = circles(svg)
    assert (x1 - x0) / (x2 - x0) == pytest.approx(0.5, abs=0.001)
    assert (y0 - y1) / (y0 - y2) == pytest.approx(0.25, abs=0.001)
    assert y2 < y0  # up is more


def test_a_logarithmic_axis_keeps_ratios() -> None:
    svg = drawn(Series("s", [1.0, 10.0, 1000.0], [1.0, 1.0, 1.0]), x=Axis("x", log=True))
    (x0, _), (x1, _), (x2, _) = circles(svg)
    assert (x1 - x0) / (x2 - x0) == pytest.approx(1 / 3, abs=0.001)
    assert {t.text for t in svg.all("text")} >= {"1", "10", "100", "1,000"}


def test_a_title_and_a_description_are_there() -> None:
    svg = drawn(Series("s", [1.0], [2.0]))
    assert svg.attributes["role"] == "img"
    assert svg.attributes["aria-label"] == "Title. Words."
    assert [child.text for child in svg.children[:2]] == ["Title", "Words."]


def test_a_point_says_its_numbers() -> None:
    svg = drawn(Series("s", [1.5], [-2.25]))
    assert svg.all("circle")[0].all("title")[0].text == "s: 1.5, −2.25"


def test_what_is_not_finite_leaves_a_gap() -> None:
    svg = drawn(Series("s", [0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 1.0, NAN, 1.0, 0.0]))
    assert len(circles(svg)) == 4
    (line,) = (p for p in svg.all("path") if "line" in p.attributes["class"])
    assert line.attributes["d"].count("M") == 2


def test_points_outside_the_frame_are_left_out_and_lines_end_at_it() -> None:
    svg = drawn(Series("s", [0.0, 1.0], [0.5, 9.0]), y=Axis("y", 0.0, 1.0), height=260.0)
    assert len(circles(svg)) == 1
    (line,) = (p for p in svg.all("path") if "line" in p.attributes["class"])
    assert line.attributes["d"].endswith(" 12.0")  # the frame's upper edge


def test_stairs_hold_a_value_until_the_next() -> None:
    svg = drawn(Series("s", [0.0, 1.0], [0.0, 1.0], stairs=True), x=Axis("x", 0, 1))
    (line,) = (p for p in svg.all("path") if "line" in p.attributes["class"])
    (start, before, end) = re.fullmatch(
        r"M([\d.]+) [\d.]+H([\d.]+)L([\d.]+) [\d.]+", line.attributes["d"]
    ).groups()  # type: ignore[union-attr]
    assert float(start) < float(before) == float(end)


@pytest.mark.parametrize(
    "series",
    [
        Series("none", [], []),
        Series("one", [3.0], [0.7]),
        Series("flat", [1.0, 2.0], [0.5, 0.5]),
        Series("nan", [1.0, 2.0], [NAN, NAN]),
        Series("large", [1e9, 2e9], [-1e12, 1e12]),
        Series("small", [1.0, 2.0], [1e-9, 2e-9]),
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_any_data_are_drawn_within_the_frame(series: Series, log: bool) -> None:
    svg = drawn(series, x=Axis("x", log=log), width=320.0, height=260.0)
    for x, y in circles(svg):
        assert 46 <= x <= 308
        assert 12 <= y <= 220
    numbers = re.findall(r"nan|inf", " ".join(str(e.attributes) for e in svg.all("path")))
    assert numbers == []


@pytest.mark.parametrize("end", [0.0, 0.5, 1.0])
def test_labels_at_the_ends_keep_apart_and_inside(end: float) -> None:
    series = [Series(str(i), [0.0, 1.0], [0.0, end], end=str(i)) for i in range(16)]
    svg = drawn(*series, y=Axis("y", 0.0, 1.0), height=260.0)
    heights = [float(t.attributes["y"]) for t in svg.all("text") if "end" in t.attributes["class"]]
    assert len(heights) == 16
    ordered = sorted(heights)
    assert min(b - a for a, b in itertools.pairwise(ordered)) >= 10.99
    assert 12 <= ordered[0] <= ordered[-1] <= 230


def test_bars_and_marks() -> None:
    svg = drawn(
        Series("s", [0.5], [0.5], [0.4], [1.7]),
        x=Axis("x", 0, 1),
        y=Axis("y", 0, 1),
        marks=[0.5, 5.0],
    )
    (bar,) = (e for e in svg.all("line") if "bar" in e.attributes["class"])
    assert float(bar.attributes["y2"]) == 12.0  # cut at the frame
    assert sum("mark" in e.attributes["class"] for e in svg.all("line")) == 1


def test_a_legend_names_every_series() -> None:
    (made,) = parse(legend([Series("<a>", [], []), Series("b", [], [], style=7)])).children
    assert [e.whole_text for e in made.all("li")] == ["<a>", "b"]
    # Six colours and four markers: the eighth series has the second colour and the fourth marker.
    assert made.all("polygon")[0].attributes["class"] == "dot s1"
