"""``python -m ci.acceptance``: write what was measured of the carried drafters into the README.

The bar of a drafter: on two workloads or more, 1.0 drafts accepted a step at temperature 0 and 0.8
at temperature 1.

Rule: the figures stand in each drafter's ``acceptance.json`` alone, as ``python -m vllm_av.training
measure`` left them, and decide unrounded; a test compares.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ci.readme import write
from vllm_av.demo.drafter import DRAFTERS, Drafter, carried

NAME = "acceptance.json"
BEGIN, END = "<!-- written by python -m ci.acceptance -->\n", "<!-- end of the acceptance -->\n"
WORKLOADS = ("humaneval", "docs", "instructions", "code")
BAR = (1.0, 0.8)
"""At temperature 0 and at temperature 1."""
ENOUGH = 2
WITHOUT_BAR = ("draft_model",)

Measured = Mapping[str, Any]
"""What ``acceptance.json`` says."""
Figures = Mapping[tuple[str, int], float]
"""Workload and temperature -> drafts accepted a step."""


def measured(folder: Path) -> Measured:
    """What was measured of the drafter that is carried in ``folder``."""
    found: Measured = json.loads((folder / NAME).read_text(encoding="utf-8"))
    return found


def figures(found: Measured) -> Figures:
    """Drafts accepted a step."""
    return {(row["workload"], round(row["temperature"])): row["accepted"] for row in found["rows"]}


def met(found: Figures) -> list[str]:
    """The workloads on which a drafter gets to the bar."""
    return [
        workload
        for workload in WORKLOADS
        if all(found[workload, temperature] >= least for temperature, least in enumerate(BAR))
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
    folders: dict[str, list[Drafter]] = {}
    for drafter in DRAFTERS.values():
        folders.setdefault(drafter.folder, []).append(drafter)
    for first, *others in folders.values():
        found = figures(measured(carried(first.name)))
        cells = (f"{found[name, 0]:.2f}, {found[name, 1]:.2f}" for name in WORKLOADS)
        names = ", ".join(f"`{each.name}`" for each in (first, *others))
        bar = "none set" if first.method in WITHOUT_BAR else verdict(found)
        yield names, first.pair, *cells, bar


if __name__ == "__main__":
    write(BEGIN, END, section())
