"""Whatever a learner calls its coefficients, each kind becomes one figure."""

from vllm_av.replay.report.coefficients import Path, paths_of


def test_numbers_lists_and_dicts_of_lists() -> None:
    def state(n: float, refits: int) -> dict[str, object]:
        return {
            "knots": [0.0, 1.0],
            "slope": n,
            "slopes": {"margin": [n, n + 1]},
            "intercepts": [n, 2 * n],
            "offsets": [n, n, n],
            "refits": refits,
            "labels": [5, 5],
            "name": "x",
            "flag": True,
        }

    slope, slopes, intercepts, offsets = paths_of([(0, state(1.0, 0)), (8, state(2.0, 1))])
    steps = (0.5, 8.0)
    assert slope == Path("slope", ("slope",), steps, ((1.0,), (2.0,)), (8.0,))
    assert slopes == Path(
        "slopes of margin", ("T 0", "T 1"), steps, ((1.0, 2.0), (2.0, 3.0)), (8.0,)
    )
    # As many as there are knots, and yet one for each position.
    assert intercepts.names == ("0", "1")
    assert offsets.names == ("0", "1", "2")


def test_refits_are_where_their_number_changed() -> None:
    history = [(step, {"slope": 1.0, "refits": n}) for step, n in [(0, 0), (1, 0), (5, 1), (9, 1)]]
    (path,) = paths_of(history)
    assert path.refits == (5.0,)


def test_what_is_no_coefficient_has_no_figure() -> None:
    assert paths_of([]) == []
    assert paths_of([(0, {})]) == []
    assert paths_of([(0, {"slope": None}), (1, {"slope": 1.0})]) == []
    assert paths_of([(0, {"words": ["a"], "refits": 3})]) == []
