"""The figures of every benchmark, at the end of `make bench`: pytest-benchmark's table shows how
long its loop took, and not the ratios that a benchmark works out."""

from collections.abc import Iterator

import pytest

Figures = dict[str, dict[str, object]]
_FIGURES = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = {}


@pytest.fixture(autouse=True)
def _figures(request: pytest.FixtureRequest) -> Iterator[None]:
    benchmark = (
        request.getfixturevalue("benchmark") if "benchmark" in request.fixturenames else None
    )
    yield
    if benchmark is not None:
        request.config.stash[_FIGURES][request.node.name] = dict(benchmark.extra_info)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """One block a benchmark, one line a figure."""
    found = {name: figures for name, figures in config.stash[_FIGURES].items() if figures}
    if found:
        terminalreporter.section("figures")
    for name, figures in found.items():
        terminalreporter.line(name)
        width = max(map(len, figures))
        for figure, value in figures.items():
            terminalreporter.line(f"    {figure:<{width}}  {value}")
