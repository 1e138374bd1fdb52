"""An engine that has a cost table measures nothing; one whose table does not fit does not start."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.engine.harness import engine_arguments, logged_by, speculation
from tests.engine.sampling import draw, tiny_changes, tiny_engine
from tests.unit.budget.inputs import Greedy, Inputs, random_inputs
from vllm_av.budget.costs import table
from vllm_av.budget.costs.identity import FIELDS, differences
from vllm_av.budget.gain import PredictedGain
from vllm_av.errors import Code, CostTableError
from vllm_av.preflight.question import Question, ask

LOGGER = "vllm.vllm_av.seams.cost_table"


class Started:
    """An engine, and how many steps it ran for a profile."""

    def __init__(self, pair: tuple[str, str], path: Path, steps: int, budget: Any) -> None:
        from vllm.v1.worker.cpu.model_runner import CPUModelRunner

        self.profiled: list[int] = []
        run = CPUModelRunner._dummy_run

        def counted(runner: Any, num_tokens: int, **options: Any) -> Any:
            if "real_rows" in options:
                self.profiled.append(num_tokens)
            return run(runner, num_tokens, **options)

        block = {"exploration": 0, "budget": {"cost_table_path": str(path)} | budget}
        with mock.patch.object(CPUModelRunner, "_dummy_run", counted):
            self.engine = tiny_engine(pair, steps=steps, block=block)


Start = Callable[..., Started]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("costs") / "costs.json"


@pytest.fixture
def start(random_pair: tuple[str, str], path: Path) -> Start:
    def engine(steps: int = 3, **budget: Any) -> Started:
        return Started(random_pair, path, steps, budget)

    return engine


@pytest.fixture(scope="module")
def first(random_pair: tuple[str, str], path: Path) -> Started:
    """The one that measures."""
    return Started(random_pair, path, 3, {})


def test_the_first_engine_measures_and_writes(first: Started, path: Path) -> None:
    assert first.profiled
    found = table.read(path)
    assert list(found.identity) == list(FIELDS)
    assert [size for size, _ in found.curves[1]] == sorted(set(first.profiled))
    assert found.identity["num_speculative_tokens"] == 3
    assert found.identity["attention_backends"] == ["CPU_ATTN"]
    assert found.identity["target"] == "target"
    assert found.identity["device"]
    assert found.identity["series"]
    assert str(path.parent) not in path.read_text()


def test_the_second_one_measures_nothing_and_decides_by_the_same_costs(
    first: Started, start: Start, path: Path
) -> None:
    content = path.read_bytes()
    with logged_by(LOGGER) as records:
        second = start()
    assert second.profiled == []
    assert [record.levelname for record in records if record.levelname != "INFO"] == []
    assert path.read_bytes() == content
    for before, after in zip(
        first.engine.manager.cost_tables, second.engine.manager.cost_tables, strict=True
    ):
        assert before.tolist() == after.tolist()
    expected, _ = draw(first.engine, 0.0, 12, draws=8)
    found, steps = draw(second.engine, 0.0, 12, draws=8)
    assert steps
    assert found.tolist() == expected.tolist()


def test_the_policies_are_tested_around_what_vllm_decides() -> None:
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import GreedyDraftBudgetPolicy
    from vllm.v1.worker.gpu.spec_decode.draft_budget import DraftBudgetInputs

    assert {field.name for field in fields(DraftBudgetInputs)} == {
        field.name for field in fields(Inputs)
    }
    rng = np.random.default_rng(5)
    for _ in range(300):
        copy = random_inputs(rng)
        own = DraftBudgetInputs(**vars(copy))
        assert GreedyDraftBudgetPolicy().choose(own) == Greedy().choose(copy)
        guard = PredictedGain(GreedyDraftBudgetPolicy(), 0.05)
        assert guard.choose(own) == PredictedGain(Greedy(), 0.05).choose(copy)


@pytest.mark.usefixtures("first")
def test_the_check_compares_what_the_engine_wrote(random_pair: tuple[str, str], path: Path) -> None:
    block = {"budget": {"cost_table_path": str(path)}}
    spec = json.dumps(speculation(random_pair[1], "draft_model", True, 3, block))
    flags = engine_arguments(random_pair[0], None, **tiny_changes(3))
    args = [flags["model"], "--speculative-config", spec, "--dtype", "float32", "--enforce-eager"]
    for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens"):
        args += [f"--{name.replace('_', '-')}", str(flags[name])]
    asked = ask(Question(tuple(args)))
    assert asked.setup.costs is not None
    assert len(asked.setup.costs) > 10
    assert differences(table.read(path).identity, asked.setup.costs) == []


@pytest.mark.usefixtures("first")
def test_another_number_of_drafts_is_refused_before_anything_is_loaded(
    weightless: tuple[str, str], path: Path
) -> None:
    content = path.read_bytes()
    with pytest.raises(CostTableError) as caught:
        Started(weightless, path, 2, {})
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"[AV-COST-TABLE-OTHER] the cost table {path} is of another engine: ")
    assert "num_speculative_tokens is 3 there and 2 here" in line
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("field", "value"),
    [("attention_backends", ["FLASH_ATTN"]), ("data_parallel_size", 2), ("threads", 999)],
)
@pytest.mark.usefixtures("first")
def test_what_is_known_of_the_layers_is_refused_before_their_weights(
    field: str, value: object, weightless: tuple[str, str], path: Path
) -> None:
    with edited(path, field, value), pytest.raises(CostTableError, match=f"{field} is ") as caught:
        Started(weightless, path, 3, {})
    assert caught.value.code is Code.COST_TABLE_OTHER


@pytest.mark.parametrize(
    ("field", "value"),
    [("capture_sizes", [1, 2, 4]), ("graph_mode", "FULL"), ("max_model_len", 31)],
)
def test_what_is_known_of_the_graphs_is_refused_before_a_profile(
    field: str, value: object, first: Started, path: Path
) -> None:
    manager = first.engine.manager
    before = manager.cost_tables
    with edited(path, field, value), pytest.raises(CostTableError, match=f"{field} is ") as caught:
        first.engine.runner.profile_adaptive_verification()
    assert caught.value.code is Code.COST_TABLE_OTHER
    assert manager.cost_tables is before


@contextmanager
def edited(path: Path, field: str, value: object) -> Iterator[None]:
    """Another value in the file's identity for a while."""
    content = path.read_text()
    found = json.loads(content)
    assert found["identity"][field] != value
    found["identity"][field] = value
    path.write_text(json.dumps(found))
    try:
        yield
    finally:
        path.write_text(content)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told_at_once(
    random_pair: tuple[str, str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CostTableError, match="AV-COST-TABLE-WRITE"):
        Started(random_pair, tmp_path / "costs.json", 3, {})


def test_a_folder_that_is_not_there_is_told_at_once(
    random_pair: tuple[str, str], tmp_path: Path
) -> None:
    with pytest.raises(CostTableError, match=r"AV-COST-TABLE-WRITE.*no such folder"):
        Started(random_pair, tmp_path / "none" / "costs.json", 3, {})
