"""The bars are measured on all of the repository's traces, and not on those that happen to lie
there: each that `make traces` records is there, unless AV_TRACES names others."""

import os

import pytest

from ci.traces import REQUEST_STEPS
from tests.traces import folder, paths

pytestmark = pytest.mark.full


@pytest.mark.skipif(
    bool(os.environ.get("AV_TRACES")), reason="AV_TRACES names the traces to measure"
)
@pytest.mark.parametrize("name", REQUEST_STEPS)
def test_the_trace_is_there(name: str) -> None:
    assert name in {path.stem for path in paths()}, f"{folder() / name} lacks: run `make traces`"
