"""A comparison is told by the clock, by core time too where that says something else."""

import pytest

from vllm_av.demo.figures import Drafts, Load
from vllm_av.demo.verdict import against


def _load(seconds: float, core: float = 1.0) -> Load:
    return Load(
        concurrency=1,
        requests=1,
        seconds=seconds,
        cpu_seconds=seconds * core,
        tokens=100,
        steps=100,
        request_steps=100,
        drafts=Drafts(),
        outputs=[],
    )


@pytest.mark.parametrize(
    ("load", "base", "said"),
    [
        # Both had the core to themselves, or nearly.
        (_load(1.0), _load(2.0), "a was faster (2.00x) than b"),
        (_load(2.0, 0.95), _load(1.0, 0.92), "a was slower (0.50x) than b"),
        (_load(1.0), _load(1.004), "a was as fast (1.00x) as b"),
        # The base had half a core: by the clock it looks twice as slow as it is.
        (_load(1.0), _load(4.0, 0.5), "a was faster (4.00x by the clock, 2.00x by core time) than"),
        # Both had a third of one, so the figures agree, and are to be doubted nevertheless.
        (
            _load(1.0, 0.33),
            _load(2.0, 0.33),
            "a was faster (2.00x by the clock, 2.00x by core time) than b",
        ),
        # A whole core, but more of it than one for the other.
        (_load(1.0), _load(2.0, 1.5), "a was faster (2.00x by the clock, 3.00x by core time)"),
        (_load(1.0), _load(1.4, 0.33), "no verdict (1.40x by the clock, 0.46x by core time)"),
        (_load(1.0), _load(2.0, 0.5), "no verdict (2.00x by the clock, 1.00x by core time)"),
        (_load(1.0, 0.95), _load(1.05), "a was faster (1.05x) than b"),
    ],
)
def test_a_clause_tells_both_figures_where_they_differ_or_the_core_was_shared(
    load: Load, base: Load, said: str
) -> None:
    assert said in against("a", load, "b", base)
