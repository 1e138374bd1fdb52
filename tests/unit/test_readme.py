"""What the README says of versions, codes and drafters is what the package says."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from ci import acceptance
from ci import matrix as versions
from ci.codes import table
from ci.readme import between
from vllm_av.patching.matrix import matrix

ROOT = Path(__file__).parents[2]
SERIES = "patches/*/series"


def test_the_matrix_is_what_the_series_are_for() -> None:
    assert between(versions.BEGIN, versions.END) == versions.section(), "run: python -m ci.matrix"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = chain.from_iterable(project["optional-dependencies"].values())
    pins = {pin.partition("==")[2]: pin.partition("==")[0] for pin in every}
    rows = matrix(ROOT / "patches").rows
    assert {row.vllm: row.pin.distribution for row in rows}.items() <= pins.items()
    assert [row.vllm for row in rows] == sorted(path.parent.name for path in ROOT.glob(SERIES))
    # What a row points to is on the page, and what it tells to run exists.
    text = (ROOT / "README.md").read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    for row in rows:
        assert row.tested, f"{row.vllm}: nobody says what was tested"
        links = [row.more, *re.findall(r"\((#[^)]+)\)", row.install)]
        assert {link[1:] for link in links if link} <= headings
        for test in row.tested:
            program, verb = test.command.split()[:2]
            assert (program, verb) == ("vllm-av", "patch") or verb in targets


def test_a_stale_matrix_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    monkeypatch.setattr("ci.readme.README", page)
    monkeypatch.setattr("sys.argv", ["ci.matrix", "--check"])
    page.write_text((ROOT / "README.md").read_text())
    assert versions.main() == 0
    page.write_text(page.read_text().replace("| 0.32.0 (", "| 0.31.0 ("))
    assert versions.main() == 1
    monkeypatch.setattr("sys.argv", ["ci.matrix"])
    assert versions.main() == 0
    assert page.read_text() == (ROOT / "README.md").read_text()


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
