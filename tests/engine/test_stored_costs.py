"""A policy that knows what steps cost; without ``core/stored-cost-curves`` each test here fails."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.harness import Engine
from tests.engine.sampling import REQUESTS, TINY_STEPS, tiny_engine

LARGEST = REQUESTS * (TINY_STEPS + 1)
SIZES = [1 << i for i in range(LARGEST.bit_length())]  # it is a power of two
LOADED = ([(1, 0.5), (8, 1.5)], [(1, 2.0), (16, 3.0), (48, 9.0)])


class Keeper:
    """Has cost curves, or is told them; the first request gets what the warm-up keeps."""

    def __init__(self, curves: Any = None) -> None:
        self.curves = curves
        self.asked: list[list[int]] = []
        self.saved: list[tuple[list[int], Any]] = []

    def assign(self, confidence_probs: Any, idx_mapping: Any, capacities: Any, budget: int) -> None:
        capacities.zero_()[0] = budget

    def load_cost_curves(self, capture_sizes: list[int]) -> Any:
        self.asked.append(capture_sizes)
        return self.curves

    def save_cost_curves(self, capture_sizes: list[int], curves: Any) -> None:
        self.saved.append((capture_sizes, curves))


@pytest.fixture(scope="module")
def started(random_pair: tuple[str, str]) -> Engine:
    return tiny_engine(random_pair)


@pytest.fixture
def engine(started: Engine) -> Iterator[Engine]:
    with started.kept_cost_tables():
        yield started


@pytest.fixture
def runs(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the steps that the engine has run for a profile."""
    seen: list[int] = []
    run = engine.runner._dummy_run

    def counted(num_tokens: int, **options: Any) -> Any:
        seen.append(num_tokens)
        return run(num_tokens, **options)

    monkeypatch.setattr(engine.runner, "_dummy_run", counted)
    monkeypatch.setattr(engine.manager, "_policy", engine.manager._policy)
    return seen


def test_known_costs_are_not_profiled(engine: Engine, runs: list[int]) -> None:
    manager = engine.manager
    keeper = manager._policy = Keeper(LOADED)
    engine.runner.profile_adaptive_verification()
    assert runs == []
    assert keeper.asked == [[]]
    assert keeper.saved == []
    draft, verify = manager.cost_tables
    assert draft[[1, 8]].tolist() == [0.5, 1.5]
    assert verify[[1, 16, 48]].tolist() == [2.0, 3.0, 9.0]
    assert verify[32] == 6.0  # without graphs nothing pads


def test_profiled_costs_come_back_as_they_were(engine: Engine, runs: list[int]) -> None:
    manager = engine.manager
    keeper = manager._policy = Keeper()
    engine.runner.profile_adaptive_verification()
    assert set(runs) == set(SIZES)
    profiled = manager.cost_tables
    ((sizes, curves),) = keeper.saved
    assert sizes == []
    assert [size for size, _ in curves[1]] == SIZES

    again = manager._policy = Keeper(curves)
    manager.cost_tables = None
    runs.clear()
    engine.runner.profile_adaptive_verification()
    assert runs == []
    assert again.saved == []
    for table, before in zip(manager.cost_tables, profiled, strict=True):
        assert table.tolist() == before.tolist()


@pytest.mark.usefixtures("runs")
def test_captured_sizes_pad_whether_costs_are_known_or_not(engine: Engine) -> None:
    """What the GPU's capture_model() does with the manager."""
    manager = engine.manager
    limit = manager._cudagraph_limit
    keeper = manager._policy = Keeper(LOADED)
    try:
        assert list(manager.batches_to_profile([1, 16])) == []
        manager.set_initial_cost_curves([])
    finally:
        manager._cudagraph_limit = limit
    assert keeper.asked == [[1, 16]]
    _, verify = manager.cost_tables
    assert verify[[1, 2, 16]].tolist() == [2.0, 3.0, 3.0]  # a step pads to 16
    assert verify[40] == 9.0  # beyond the largest graph, from one point


@pytest.mark.parametrize(
    "broken",
    [
        ([], LOADED[1]),
        ([(1, 1.0)], []),
        ([(0, 1.0)], LOADED[1]),
        ([(2, 1.0), (1, 1.0)], LOADED[1]),
        ([(1, 1.0), (1, 1.0)], LOADED[1]),
        ([(1, float("nan"))], LOADED[1]),
        ([(1, 1.0)], [(1, float("inf"))]),
        ([(1, 1.0)], [(1, 0.0)]),
    ],
)
def test_costs_that_make_no_table_are_refused(engine: Engine, runs: list[int], broken: Any) -> None:
    before = engine.manager.cost_tables
    engine.manager._policy = Keeper(broken)
    with pytest.raises(ValueError, match="cost curve"):
        engine.runner.profile_adaptive_verification()
    assert runs == []
    assert engine.manager.cost_tables is before


def test_vllms_policy_knows_no_costs(engine: Engine, runs: list[int]) -> None:
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import GreedyDraftBudgetPolicy

    engine.manager._policy = GreedyDraftBudgetPolicy()
    engine.runner.profile_adaptive_verification()
    assert set(runs) == set(SIZES)
