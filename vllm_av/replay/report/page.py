"""The page: one HTML document that needs nothing else, with neither script nor network.

Rule: it is laid out here; each section's content is a function of the report alone. The content
security policy forbids the browser to fetch anything, should a text ever slip through as markup.
"""

from importlib.resources import files

from vllm_av import __version__
from vllm_av.replay.report import fitted, sections
from vllm_av.replay.report.html import Markup, tag
from vllm_av.replay.report.model import Report
from vllm_av.replay.report.style import Style

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_SECTIONS = (
    ("trace", "The trace", sections.the_trace),
    ("calibration", "Calibration", sections.calibration),
    ("time", "Over time", sections.over_time),
    ("positions", "By draft position", sections.by_position),
    ("features", "Which feature predicts best", fitted.features),
    ("slopes", "One slope, or one for each position", fitted.slopes),
    ("groups", "Slope and intercepts by workload and temperature", fitted.groups),
    ("method", "How this was measured", fitted.method),
)


def render(report: Report) -> str:
    """The document."""
    style = Style.of(report)
    title = sections.title(report)
    contents = tag(
        "nav",
        tag("ul", [tag("li", tag("a", name, href=f"#{key}")) for key, name, _ in _SECTIONS]),
        aria_label="Contents",
    )
    body = tag(
        "body",
        tag("header", tag("h1", title), sections.summary(report), contents),
        tag(
            "main",
            [
                tag("section", tag("h2", name, id=key), content(report, style))
                for key, name, content in _SECTIONS
            ],
        ),
        tag("footer", tag("p", f"Made by vllm_av {__version__}.", class_="quiet small")),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(_css())),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _css() -> str:
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")
