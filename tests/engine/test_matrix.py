"""Every drafter type under every scorer, greedy and sampled: the output stays the target's.

The checkpoints are tiny (:mod:`tests.engine.drafters`), the cells pairs of everything
(:mod:`tests.engine.matrix`). Greedy tokens are those of transformers without speculation; they are
drawn in chunks of their prompts, many requests and one at a time. Sampled tokens follow the joint
distribution that transformers gives. While drafts are trimmed, that is asserted too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from tests.engine import models
from tests.engine.drafters import TYPES
from tests.engine.drafters.target import Pair
from tests.engine.grading import graded, totals
from tests.engine.harness import Engine, Step, assert_trimmed, release_engines, speculation
from tests.engine.matrix import AUTO, FIXED, HEAD, Cell, cells
from tests.engine.sampling import (
    LENGTH,
    PROMPT,
    REQUESTS,
    TINY_STEPS,
    cap_drafts,
    draw,
    p_value,
    tiny_changes,
)
from tests.kernels.check import compared
from vllm_av.drafters import TYPES as TABLE
from vllm_av.drafters import DraftLogits, Head
from vllm_av.scorers.select import select
from vllm_av.seams.scorer import type_of

ROWS = {row.name: row for row in TABLE}
WITH_HEAD = [name for name, kind in TYPES.items() if ROWS[kind.row].head is Head.HAS]
CELLS = cells(list(TYPES), WITH_HEAD)
COLD = [cell for cell in CELLS if cell.temperature == 0]
HOT = [cell for cell in CELLS if cell.temperature == 1]
PROMPTS = [[(n + 3 * k + n * k * k) % 8 for k in range(4 + n)] for n in range(8)]
CHUNK = 56  # tokens a step: not all of the prompts
DRAWS = 12_000
ROOM = 0.88  # share of the drafts: the last position is to have labels too
LABELS = 400  # of each position at least: the error of a mean is then at most .025
ROUND = 10  # decode steps from refit to refit
EARLY = 5  # refits before predictions count


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    """Each test has engines of its own, and there are too many of them to keep."""
    yield
    release_engines()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """The checkpoints of a type, made once."""
    root = tmp_path_factory.mktemp("drafters")
    return cache(lambda name: TYPES[name].make(root))


@pytest.fixture(scope="module")
def greedy() -> Callable[[str], list[list[int]]]:
    """Tokens after each prompt by a target, by transformers."""
    return cache(lambda target: [models.greedy(target, prompt) for prompt in PROMPTS])


@pytest.fixture(scope="module")
def joint() -> Callable[[str], torch.Tensor]:
    return cache(lambda target: models.joint(target, PROMPT, LENGTH, 1.0))


def start(cell: Cell, pair: Pair, **changes: Any) -> Engine:
    block: dict[str, Any] | None = None
    if cell.verification != FIXED:
        block = {"scorer": cell.verification}
        if in_force(cell) == "online_estimator":
            block["estimator"] = {"refit_interval": ROUND}
    spec = speculation(pair.draft, TYPES[cell.drafter].method, block is not None, TINY_STEPS, block)
    return Engine(pair.target, spec, **tiny_changes() | changes)


def in_force(cell: Cell) -> str:
    """The scorer that the table of drafters promises."""
    row = ROWS[TYPES[cell.drafter].row]
    if cell.verification != AUTO:
        return cell.verification
    logits = row.logits is not DraftLogits.NONE
    return select(AUTO, has_head=row.head is Head.HAS, has_logits=logits).name


def assert_as_the_table_says(cell: Cell, engine: Engine) -> None:
    spec, speculator = engine.runner.speculative_config, engine.runner.speculator
    row = type_of(spec, has_head=cell.drafter in WITH_HEAD)
    assert row is ROWS[TYPES[cell.drafter].row]
    assert row.speculator == type(speculator).__name__
    assert engine.adaptive == (cell.verification != FIXED)
    if engine.adaptive:
        assert engine.scorer.name == in_force(cell)


@pytest.mark.parametrize("cell", COLD, ids=lambda cell: f"{cell.drafter}-{cell.verification}")
def test_greedy(
    cell: Cell, pair: Callable[[str], Pair], greedy: Callable[[str], list[list[int]]]
) -> None:
    found = pair(cell.drafter)
    engine = start(cell, found, max_num_seqs=8, max_num_batched_tokens=CHUNK)
    assert_as_the_table_says(cell, engine)
    for batch in (8, 1):
        with graded(engine, since=0) as rows, asked(engine) as methods:
            steps = greedy_steps(engine, batch, greedy(found.target))
        if engine.adaptive:
            assert_trimmed("some", steps)
        if engine.adaptive and batch > 1:
            assert any(step.ragged for step in steps)
            # Steps that verify some requests while others are still in their prompts.
            assert any(0 in step.scheduled and any(step.scheduled) for step in steps)
        if engine.adaptive:
            predicts = "predict_block" if in_force(cell) == HEAD else "predict"
            assert methods == {predicts, "observe"}
        labels = totals(rows).labels
        assert 0 < (totals(rows).accepted * labels)[0] < labels[0]


@contextmanager
def asked(engine: Engine) -> Iterator[set[str]]:
    """Which methods of the scorer in force are called inside the block."""
    called: set[str] = set()
    if not engine.adaptive:
        yield called
        return
    scorer = engine.scorer

    def noting(name: str) -> Any:
        method = getattr(scorer, name)

        def call(*arguments: Any) -> Any:
            called.add(name)
            return method(*arguments)

        return mock.patch.object(scorer, name, call)

    with noting("predict"), noting("predict_block"), noting("observe"):
        yield called


def greedy_steps(engine: Engine, batch: int, right: list[list[int]]) -> list[Step]:
    """The verifications that greedy tokens took; those must be ``right``."""
    if not engine.adaptive:
        assert engine.greedy(PROMPTS, batch) == right
        return []
    with engine.kept_cost_tables(), engine.recorded() as steps:
        cap_drafts(engine, max(1, batch * TINY_STEPS // 3), batch)
        assert engine.greedy(PROMPTS, batch) == right
    return steps


@pytest.mark.parametrize("cell", HOT, ids=lambda cell: f"{cell.drafter}-{cell.verification}")
def test_sampled(
    cell: Cell, pair: Callable[[str], Pair], joint: Callable[[str], torch.Tensor]
) -> None:
    found = pair(cell.drafter)
    engine = start(cell, found)
    assert_as_the_table_says(cell, engine)
    if engine.adaptive:
        cap_drafts(engine, round(ROOM * REQUESTS * TINY_STEPS))
    learns = engine.adaptive and in_force(cell) == "online_estimator"
    with graded(engine, since=EARLY if learns else 0) as rows:
        tokens, steps = draw(engine, 1.0, LENGTH, DRAWS)
    p = p_value(tokens, joint(found.target))
    labels, predicted, accepted = totals(rows)
    print(f"p = {p:.3g}, {labels} labels, accepted {accepted}, predicted {predicted}")
    assert p > 0.001
    assert (labels >= LABELS).all()
    assert ((accepted > 0.01) & (accepted < 0.99)).all()
    if engine.adaptive:
        assert_trimmed("some", steps)
        assert sum(step.ragged for step in steps) > len(steps) / 2
    if learns:
        assert engine.estimator.refits > EARLY
        assert_calibrated(labels, predicted, accepted)


def assert_calibrated(labels: np.ndarray, predicted: np.ndarray, accepted: np.ndarray) -> None:
    error = np.sqrt(accepted * (1 - accepted) / labels)
    assert (abs(predicted - accepted) <= 0.03 + 3 * error).all()


@pytest.mark.full
@pytest.mark.parametrize("drafter", TYPES)
def test_its_kernels_are_compiled_and_agree_with_the_interpreter(
    drafter: str, pair: Callable[[str], Pair]
) -> None:
    from vllm import SamplingParams

    found = pair(drafter)
    engine = start(Cell(drafter, AUTO, 1), found, max_num_seqs=8, max_num_batched_tokens=CHUNK)
    cap_drafts(engine, 4, requests=3)
    params = [
        SamplingParams(temperature=temperature, max_tokens=8, ignore_eos=True, seed=1)
        for temperature in (0.0, 1.0, 0.7)
    ]
    with compared() as report, engine.recorded() as steps:
        engine.generate(PROMPTS[:3], params)
    assert any(step.ragged for step in steps)
    assert sum(report.launches.values()) > 50
    assert dict(report.interpreted) == {}
    assert report.differences == []
