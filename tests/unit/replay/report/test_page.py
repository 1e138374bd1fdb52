"""The page is whole, needs nothing else, and says what the report says, whatever the trace."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.replay.report.full import WORDS, full
from tests.unit.replay.report.reading import Element, parse, table_of
from tests.unit.replay.synthetic import synthetic
from vllm_av.replay.info import TraceInfo
from vllm_av.replay.report.build import build
from vllm_av.replay.report.model import Report
from vllm_av.replay.report.page import render
from vllm_av.replay.trace import Trace

HOSTILE = "</style></svg><script>alert('\"')</script>&amp;\x00\u202e" + "x" * 5000


def _without_labels() -> Trace:
    return synthetic(verified=0)


def _all_masked() -> Trace:
    trace = full(steps=60)
    masked = np.zeros(trace.num_rows, np.int32)
    return Trace(trace.info, trace.columns | {"masked": masked}, trace.num_rows, WORDS)


def _not_finite() -> Trace:
    trace = full(steps=60)
    features = ("log_odds", "log_odds_scaled", "entropy", "entropy_scaled", "margin")
    features += ("margin_scaled", "log_q_drawn")
    nothing = dict.fromkeys(features, np.full(trace.num_rows, np.nan, np.float32))
    return Trace(trace.info, trace.columns | nothing, trace.num_rows, WORDS)


def _constant() -> Trace:
    """A drafter that always says the same: there is a fit, and nothing to tell a slope by."""
    trace = synthetic(steps=200, requests=12)
    same = {name: np.ones(trace.num_rows, np.float32) for name in ("log_odds", "log_odds_scaled")}
    return Trace(trace.info, trace.columns | same, trace.num_rows)


def _all_accepted() -> Trace:
    trace = full(steps=60)
    accepted = np.ones(trace.num_rows, bool)
    return Trace(trace.info, trace.columns | {"accepted": accepted}, trace.num_rows, WORDS)


def _hostile() -> Trace:
    trace = full(steps=60)
    said = ("drafter", "method", "target", "draft", "vllm", "vllm_av", "scorer")
    about: Any = dict.fromkeys(said, HOSTILE[:150])
    info = TraceInfo(num_speculative_tokens=3, censoring="none", **about)
    words = {"masked": (HOSTILE, "+"), "workload": (HOSTILE, "", "(none)")}
    return Trace(info, trace.columns, trace.num_rows, words, f"/somewhere/{HOSTILE[:150]}")


def _many_temperatures() -> Trace:
    return synthetic(steps=60, requests=50, temperatures=tuple(np.linspace(0.0, 2.0, 50)))


def _many_workloads() -> Trace:
    trace = synthetic(steps=60, requests=50)
    words = {"workload": tuple(f"workload {i}" for i in range(50))}
    columns = trace.columns | {"workload": trace["request"].astype(np.int32)}
    return Trace(trace.info, columns, trace.num_rows, words)


TRACES: dict[str, Callable[[], Trace]] = {
    "every column": lambda: full(steps=500),
    "required columns only": lambda: Trace(
        (t := synthetic()).info,
        {k: v for k, v in t.columns.items() if k != "log_odds_scaled"},
        t.num_rows,
    ),
    "one position": lambda: synthetic(positions=1, intercepts=(0.2,)),
    "one temperature": lambda: full(steps=60, temperatures=(0.7,)),
    "one row": lambda: synthetic(steps=1, requests=1, positions=1, intercepts=(0.0,)),
    "no labels": _without_labels,
    "all masked": _all_masked,
    "not finite": _not_finite,
    "all accepted": _all_accepted,
    "a constant feature": _constant,
    "16 positions": lambda: full(steps=60, positions=16, intercepts=[1.0] * 16),
    "100 positions": lambda: synthetic(steps=40, positions=100, intercepts=[3.0] * 100),
    "censored": lambda: full(steps=60, verified=2),
    "hostile names": _hostile,
    "many temperatures": _many_temperatures,
    "many workloads": _many_workloads,
}


@pytest.fixture(scope="module", params=TRACES)
def made(request: pytest.FixtureRequest) -> tuple[Report, str]:
    report = build(TRACES[request.param]())
    return report, render(report)


def test_the_page_is_well_formed_and_needs_nothing_else(made: tuple[Report, str]) -> None:
    _, page = made
    assert page.startswith("<!doctype html>")
    found = parse(page)
    everything = [element for name in _names(found) for element in found.all(name)]
    assert not {"script", "link", "img", "iframe", "object", "image", "use"} & _names(found)
    for element in everything:
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            assert name not in {"src", "srcset", "xlink:href", "data"}
            if name == "href":
                assert value[1:] in {e.attributes.get("id") for e in everything}
    (style,) = found.all("style")
    assert not re.search(r"url\(|@import", style.text)
    (policy,) = (m for m in found.all("meta") if "http-equiv" in m.attributes)
    assert "default-src 'none'" in policy.attributes["content"]
    ids = [e.attributes["id"] for e in everything if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    page.encode()


def test_every_figure_has_a_title_and_its_numbers(made: tuple[Report, str]) -> None:
    found = parse(made[1])
    figures = found.all("figure")
    assert len(figures) >= 3
    for figure in figures:
        (drawing,) = figure.all("svg")
        assert drawing.children[0].name == "title"
        assert drawing.children[0].text
        assert len(drawing.children[1].text) > 5
        (numbers,) = figure.all("table")
        assert numbers.all("caption")[0].whole_text == drawing.children[0].text
        points = [p for p in drawing.all("path") if "line" in p.attributes["class"]]
        assert bool(points) <= (len(numbers.all("tr")) > 1)


def test_no_number_is_nan_and_no_table_is_ragged(made: tuple[Report, str]) -> None:
    found = parse(made[1])
    for element in [*found.all("path"), *found.all("circle"), *found.all("line")]:
        assert not re.search("nan|inf", " ".join(element.attributes.values()))
    body = found.all("body")[0]
    for table in body.all("table"):
        widths = {
            sum(int(c.attributes.get("colspan", 1)) for c in row.children)
            for row in table.all("tr")
        }
        assert len(widths) == 1
        for cell in [*table.all("td"), *table.all("th")]:
            assert cell.whole_text.lower() not in {"nan", "inf", "-inf", "none"}


def test_the_report_is_json(made: tuple[Report, str]) -> None:
    found = made[0].as_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_names_stay_text() -> None:
    report = build(_hostile())
    page = parse(render(report))
    assert "alert" in page.all("h1")[0].text
    rows = table_of(page, "By workload")
    assert rows[1][0].startswith("</style></svg><script>alert('\"')</script>&amp;\ufffd\ufffd")
    assert len(rows[1][0]) == 60


def _names(element: Element) -> set[str]:
    return {element.name}.union(*map(_names, element.children))


@pytest.fixture(scope="module")
def whole() -> tuple[Report, Element]:
    report = build(full(steps=500), "pooled_estimator")
    return report, parse(render(report))


def test_the_table_of_features_shows_the_report(whole: tuple[Report, Element]) -> None:
    report, page = whole
    head, *rows = table_of(page, "Features")
    assert head[:6] == ["Feature", "Temperature", "Lossless?", "AUC", "Log-loss", "ECE"]
    assert len(rows) == len(report.features) == 12
    for cells, row in zip(rows, report.features, strict=True):
        assert cells[0] == row.title
        assert cells[2] == ("yes" if row.lossless else "no")
        assert float(cells[3]) == pytest.approx(row.figures.auc, abs=6e-5)
        assert float(cells[4]) == pytest.approx(row.figures.log_loss, abs=6e-5)
        assert float(cells[5]) == pytest.approx(row.figures.ece_mass, abs=6e-5)
    assert [cells[2] for cells in rows if "q_sampled" in cells[0]] == ["no", "no"]


def test_the_tables_of_slopes_and_groups_show_the_report(whole: tuple[Report, Element]) -> None:
    report, page = whole
    _, _, *rows = table_of(page, "Shared slope against")
    for cells, row in zip(rows, report.slopes, strict=True):
        shared, own = row.shared, row.own
        gains = own.auc - shared.auc, own.log_loss - shared.log_loss
        found = [float(cell.replace("−", "-")) for cell in cells[2:]]
        assert found == pytest.approx(
            [shared.auc, own.auc, gains[0], shared.log_loss, own.log_loss, gains[1], row.error],
            abs=6e-5,
        )
    _, _, *rows = table_of(page, "The slopes")
    for cells, row in zip(rows, report.slopes, strict=True):
        found = [float(cell.replace("−", "-")) for cell in cells[2:]]
        assert found == pytest.approx([row.slope, *row.slopes], abs=6e-4)
    for caption, groups in (
        ("Fits of logit(q_max), unscaled, to each workload", report.workloads),
        ("Fits of logit(q_max), scaled, to each temp", report.temperatures["log_odds_scaled"]),
        ("Fits of logit(q_max), unscaled, to each temp", report.temperatures["log_odds"]),
    ):
        _, _, *rows = table_of(page, caption)
        for cells, group in zip(rows, groups, strict=True):
            assert cells[0] == group.name
            assert cells[1] == f"{group.labels:,}"
            found = [float(cell.replace("−", "-")) for cell in cells[3:]]
            assert found == pytest.approx(
                [group.entropy, group.slope, group.error, *group.intercepts], abs=6e-4
            )


def test_the_tables_of_positions_and_temperatures_show_the_report(
    whole: tuple[Report, Element],
) -> None:
    report, page = whole
    for caption, named, before in (
        ("Conditional probability by draft position", "positions", 3),
        ("Conditional probability by temperature", "regimes", 3),
    ):
        spans, head, *rows = table_of(page, caption)
        assert spans[1:] == [p.title for p in report.predictors]
        assert head[before:] == ["AUC", "Log-loss", "ECE"] * len(report.predictors)
        for i, cells in enumerate(rows):
            expected = [
                value
                for p in report.predictors
                for f in [getattr(p, named)[i].figures]
                for value in (f.auc, f.log_loss, f.ece_mass)
            ]
            assert list(map(float, cells[before:])) == pytest.approx(expected, abs=6e-4)
        assert len(rows) == len(getattr(report.predictors[0], named))


def test_the_best_lossless_fit_of_each_column_is_marked(whole: tuple[Report, Element]) -> None:
    report, page = whole
    (table,) = (
        t for t in page.all("table") if t.all("caption")[0].whole_text.startswith("Features")
    )
    marked = {
        (number, column)
        for number, row in enumerate(table.all("tr")[1:])
        for column, cell in enumerate(row.children)
        if cell.all("span")
    }
    fair = {i: r.figures for i, r in enumerate(report.features) if r.lossless and r.fitted}
    lossy = [r.figures for r in report.features if not r.lossless]
    assert max(f.auc for f in lossy) > max(f.auc for f in fair.values())  # and is not marked
    for column, best, of in (
        (3, max, lambda i: fair[i].auc),
        (4, min, lambda i: fair[i].log_loss),
        (5, min, lambda i: fair[i].ece_mass),
    ):
        value = of(best(fair, key=of))
        assert {n for n, c in marked if c == column} == {i for i in fair if of(i) == value}


def test_what_the_reader_is_told_first_is_right(whole: tuple[Report, Element]) -> None:
    report, page = whole
    lines = [li.whole_text for li in page.all("header")[0].all("ul")[0].all("li")]
    scorer = report.predictors[0].conditional.figures
    for line in lines[2:]:
        (other,) = (p for p in report.predictors[1:] if p.title in line)
        gap = scorer.log_loss / other.conditional.figures.log_loss - 1
        assert f"{abs(100 * gap):.1f}%" in line
        assert ("above" in line) == (gap >= 0)
        assert ("below" in line) == (gap < 0)
    assert len(lines) == 2 + len(report.predictors) - 1
    assert f"{scorer.labels:,}" not in lines[0]  # all labels, not the judged ones
    assert f"{report.facts.total.labels:,} labelled drafts of full.parquet" in lines[0]


@pytest.mark.parametrize(
    ("better", "said"),
    [
        ((True, True, True), "better than the head at every position"),
        ((False, False, False), "better than the head at no position"),
        ((True, False, True), "better than the head at positions 0 and 2 of 3"),
        ((False, True, False), "better than the head at position 1 of 3"),
    ],
)
def test_where_the_scorer_leads_is_told(better: tuple[bool, ...], said: str) -> None:
    trace = full(steps=300)
    x, here = trace["log_odds"], np.array(better)[trace["position"]]
    # The head knows nothing where the scorer is to lead, and the label itself elsewhere.
    head = np.where(here, 0.5, 0.1 + 0.8 * trace["accepted"]).astype(np.float32)
    columns = trace.columns | {"head": np.where(np.isfinite(x), head, np.nan)}
    page = render(build(Trace(trace.info, columns, trace.num_rows, WORDS), "pooled_estimator"))
    assert said in page


def test_few_labels_are_warned_of() -> None:
    page = parse(render(build(full(steps=60))))
    (warning,) = (e for e in page.all("div") if e.attributes.get("class") == "warn")
    assert "Few labels by position: 0 (" in warning.whole_text
    assert "too short to part" in warning.whole_text
    assert "are in no figure" in warning.whole_text


def test_many_labels_are_not() -> None:
    trace = synthetic(steps=3000, requests=16, positions=1, intercepts=(0.0,), temperatures=(1.0,))
    page = render(build(trace, "pooled_estimator"))
    assert "Few labels" not in page
    assert "too short to part" not in page


def test_a_censored_trace_says_so() -> None:
    facts = parse(render(build(full(steps=60, verified=2)))).all("dl")[0].whole_text
    assert "the drafts that it admitted" in facts
    assert "every scheduled draft was verified" not in facts


def test_a_trace_that_is_too_short_is_judged_as_a_whole() -> None:
    report = build(full(steps=60))
    assert not report.parted
    assert report.predictors[0].conditional.figures.labels == report.facts.total.labels
    assert build(full(steps=500)).parted


def test_the_scorer_in_question_is_not_compared_with_itself() -> None:
    trace = full(steps=60)
    for scorer in ("upstream", "confidence_head", "recorded", "max_probability"):
        report = build(trace, scorer)
        keys = [p.key for p in report.predictors]
        assert keys[0] == scorer
        assert len(set(keys)) == len(keys)
        assert set(keys) >= {"upstream", "confidence_head", "recorded", "optimum"}
        assert "<script" not in render(report)


def test_settings_reach_the_scorer() -> None:
    trace = synthetic(steps=250)

    def refits(*assignments: str) -> Any:
        return build(trace, "pooled_estimator", assignments).predictors[0].history[-1][1]["refits"]

    assert refits("estimator.refit_interval=10") == 25
    assert refits("estimator.refit_interval=50") == 5


def test_upstream_needs_the_scaled_feature_and_its_absence_is_told() -> None:
    report = build(TRACES["required columns only"]())
    assert [p.key for p in report.predictors] == ["online_estimator", "optimum"]
    assert any(note.startswith("Upstream") and "log_odds_scaled" in note for note in report.notes)
    assert not math.isnan(report.predictors[0].conditional.figures.log_loss)
