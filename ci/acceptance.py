"""``python -m ci.acceptance``: write what the carried drafters' papers measured into the README.

The bar of a drafter: on two workloads or more, 1.0 drafts accepted a step at temperature 0 and 0.8
at temperature 1.

Rule: the figures stand in each drafter's ``PROVENANCE.md`` alone; a test compares.
"""

import re
from collections.abc import Iterator, Mapping

from ci.readme import write
from vllm_av.demo.drafter import DRAFTERS, Drafter, carried

BEGIN, END = "<!-- written by python -m ci.acceptance -->\n", "<!-- end of the acceptance -->\n"
WORKLOADS = ("humaneval", "docs", "instructions", "code")
BAR = (1.0, 0.8)
"""At temperature 0 and at temperature 1."""
ENOUGH = 2
WITHOUT_BAR = ("draft_model",)
_ROW = re.compile(r"^\| (\w+) \| ([01]) \| (\d\.\d+) \|", re.MULTILINE)

Figures = Mapping[tuple[str, int], float]
"""Workload and temperature -> drafts accepted a step."""


def figures(paper: str) -> Figures:
    """Those of a ``PROVENANCE.md``; of two tables, those of the first."""
    found: dict[tuple[str, int], float] = {}
    for workload, temperature, accepted in _ROW.findall(paper):
        found.setdefault((workload, int(temperature)), float(accepted))
    return found


def met(found: Figures) -> list[str]:
    """The workloads on which a drafter gets to the bar."""
    return [
        workload
        for workload in WORKLOADS
        if all(found[workload, heat] >= least for heat, least in enumerate(BAR))
    ]


def verdict(found: Figures) -> str:
    """Whether the bar is met, and on how many workloads."""
    count = len(met(found))
    return f"{'met' if count >= ENOUGH else 'missed'}: {count} of {len(WORKLOADS)}"


def section() -> str:
    """What stands between the two marks."""
    head = ("`--drafter`", "what", *WORKLOADS, "bar")
    rows = [head, ("---",) * len(head), *_rows()]
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows) + "\n"


def _rows() -> Iterator[tuple[str, ...]]:
    papers: dict[str, list[Drafter]] = {}
    for drafter in DRAFTERS.values():
        papers.setdefault(drafter.folder, []).append(drafter)
    for first, *others in papers.values():
        paper = carried(first.name) / "PROVENANCE.md"
        if not paper.exists():
            continue
        found = figures(paper.read_text(encoding="utf-8"))
        cells = (f"{found[name, 0]:.2f}, {found[name, 1]:.2f}" for name in WORKLOADS)
        names = ", ".join(f"`{each.name}`" for each in (first, *others))
        bar = "none set" if first.method in WITHOUT_BAR else verdict(found)
        yield names, first.pair, *cells, bar


if __name__ == "__main__":
    write(BEGIN, END, section())
