"""What the README says of versions, codes and drafters is what the package says."""

import tomllib
from itertools import chain
from pathlib import Path

import pytest

from ci import acceptance
from ci.codes import table
from ci.readme import between
from vllm_av import __version__

ROOT = Path(__file__).parents[2]
HEAD = "| vllm_av | vLLM | series | tested |"


def _rows() -> list[list[str]]:
    """The first three cells of each row of the matrix."""
    lines = (ROOT / "README.md").read_text().splitlines()
    found = []
    for line in lines[lines.index(HEAD) + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.split("|")[1:4]])
    return found


def test_the_matrix_is_what_the_series_are_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = chain.from_iterable(project["optional-dependencies"].values())
    pins = {pin.partition("==")[2]: pin.partition("==")[0] for pin in every}
    rows = []
    for series in sorted(ROOT.glob("patches/*/series")):
        version = series.parent.name
        lines = [line.strip() for line in series.read_text().splitlines()]
        groups = sorted({line.partition("/")[0] for line in lines if line and line[0] != "#"})
        named = ", ".join(f"`{group}`" for group in groups)
        rows.append([__version__, f"{version} (`{pins[version]}`)", named])
    assert rows
    assert _rows() == rows


def test_the_codes_are_all_there() -> None:
    expected = table((ROOT / "vllm_av/errors.py").read_text())
    assert "| `AV-USAGE` | The command line names " in expected
    assert expected in (ROOT / "README.md").read_text(), "run: python -m ci.codes"


def test_the_drafters_have_the_figures_that_were_measured() -> None:
    written = between(acceptance.BEGIN, acceptance.END)
    assert written == acceptance.section(), "run: python -m ci.acceptance"


def test_figures_are_those_of_the_rows_and_not_rounded() -> None:
    rows = [
        {"workload": "docs", "temperature": 0.0, "accepted": 0.9996, "steps": 7},
        {"workload": "docs", "temperature": 1.0, "accepted": 0.8, "steps": 7},
    ]
    assert acceptance.figures({"rows": rows}) == {("docs", 0): 0.9996, ("docs", 1): 0.8}


@pytest.mark.parametrize(
    ("docs", "said"),
    [
        ((1.0, 0.8), "met: 2 of 4"),
        ((0.9996, 2.0), "missed: 1 of 4"),
        ((2.0, 0.79), "missed: 1 of 4"),
    ],
)
def test_a_bar_is_met_on_two_workloads_at_both_temperatures(
    docs: tuple[float, float], said: str
) -> None:
    found = {(name, temperature): 0.0 for name in acceptance.WORKLOADS for temperature in (0, 1)}
    found |= {("humaneval", 0): 1.5, ("humaneval", 1): 1.5, ("docs", 0): docs[0]}
    assert acceptance.verdict(found | {("docs", 1): docs[1]}) == said
