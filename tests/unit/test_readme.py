"""What the README says of versions and codes is what the series and the package say."""

import tomllib
from itertools import chain
from pathlib import Path

from ci.codes import table
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
