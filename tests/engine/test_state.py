"""An engine that is started again goes on from what the last one had learnt, or says why not.

The engines of this file are all in this process: one that is started on a state file lets the one
before it write its last state, as the end of a process does.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.harness import Engine, logged_by
from tests.engine.sampling import draw, tiny_engine
from vllm_av.config import AdaptiveVerificationConfig
from vllm_av.errors import StateError
from vllm_av.scorers.guard import GuardedScorer
from vllm_av.state import file, keeper
from vllm_av.state.claim import Claim

LOGGER = "vllm.vllm_av.seams.state"
SCORERS = ("online_estimator", "pooled_estimator")
Start = Callable[..., Engine]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    keeper.close(tmp_path / "state")


@pytest.fixture
def start(random_pair: tuple[str, str], path: Path) -> Start:
    """``start("pooled_estimator", steps=2)``: an engine on the state file ``path``."""

    def engine(scorer: str, steps: int = 3, pair: tuple[str, str] = random_pair) -> Engine:
        block = {"scorer": scorer, "state_file": str(path), "estimator": {"refit_interval": 4}}
        return tiny_engine(pair, steps=steps, block=block)

    return engine


def state_of(engine: Engine) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in engine.scorer.scorer.state_tensors().items()}


def assert_equal(state: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert state.keys() == other.keys()
    for name, value in state.items():
        torch.testing.assert_close(other[name], value, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("scorer", SCORERS)
def test_it_goes_on_as_if_it_had_never_stopped(scorer: str, start: Start) -> None:
    first = start(scorer)
    cold = state_of(first)
    draw(first, 1.0, 20, draws=64)
    learnt = state_of(first)
    assert any(not torch.equal(learnt[name], cold[name]) for name in learnt)

    with logged_by(LOGGER) as records:
        second = start(scorer)
    assert [record.getMessage() for record in records] == []
    assert_equal(learnt, state_of(second))

    # The first one's scorer is told the same from now on: it goes on as if nobody had stopped it.
    guard, before = second.scorer, first.scorer.scorer
    predict, observe = guard.predict, guard.observe
    scores: list[tuple[torch.Tensor, torch.Tensor]] = []

    def see_predict(*arguments: Any) -> None:
        predict(*arguments)
        *others, out = arguments[:5]
        expected = torch.zeros_like(out)
        before.predict(*others, expected)
        rows = len(others[0])
        scores.append((out[:rows, others[2]].clone(), expected[:rows, others[2]]))

    def see_observe(*arguments: Any) -> None:
        observe(*arguments)
        before.observe(*arguments[:3])

    guard.predict, guard.observe = see_predict, see_observe
    draw(second, 1.0, 8, draws=16)
    assert len(scores) > 6
    for found, expected in scores:
        assert torch.equal(found, expected)
    assert_equal(before.state_tensors(), state_of(second))


def test_another_number_of_drafts_starts_cold_and_keeps_the_file(start: Start, path: Path) -> None:
    first = start(SCORERS[0])
    draw(first, 1.0, 20, draws=64)
    keeper.close(path)
    content = path.read_bytes()

    with logged_by(LOGGER) as records:
        second = start(SCORERS[0], steps=2)
    (record,) = records
    line = record.getMessage()
    assert record.levelname == "WARNING"
    assert "[AV-STATE-OTHER]" in line
    assert "num_speculative_tokens is 3 and not 2" in line
    assert "\n" not in line
    assert second.scorer.snapshot()["refits"] == 0
    assert path.read_bytes() == content
    draw(second, 1.0, 8, draws=16)
    keeper.close(path)
    assert path.with_name("state.refused").read_bytes() == content
    assert path.read_bytes() != content


@pytest.mark.parametrize("damage", ["another pair", "another estimator", "cut", "not finite"])
def test_what_does_not_fit_starts_cold(
    damage: str, start: Start, path: Path, constant_pair: tuple[str, str]
) -> None:
    first = start(SCORERS[1])
    cold = state_of(first)
    draw(first, 1.0, 20, draws=32)
    keeper.close(path)
    scorer, pair, code = SCORERS[1], {}, "AV-STATE-OTHER"
    if damage == "another pair":
        pair = {"pair": constant_pair}
    elif damage == "another estimator":
        scorer = SCORERS[0]
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:700])
        code = "AV-STATE-DAMAGED"
    else:
        spoilt = {name: value.numpy().copy() for name, value in state_of(first).items()}
        spoilt["intercepts"][:] = float("nan")
        identity = keeper_identity(first)
        file.write(path, identity, spoilt)
    with logged_by(LOGGER) as records:
        second = start(scorer, **pair)
    (record,) = records
    assert f"[{code}]" in record.getMessage()
    assert second.scorer.snapshot()["refits"] == 0
    if scorer == SCORERS[1]:
        assert_equal(cold, state_of(second))


def keeper_identity(engine: Engine) -> dict[str, Any]:
    from vllm_av.seams.state import identity_of

    config = engine.runner.speculator.vllm_config
    return identity_of(config, engine.scorer.name, engine.scorer.scorer.state_kind)


def test_a_file_that_cannot_be_written_stops_the_start(
    random_pair: tuple[str, str], tmp_path: Path
) -> None:
    block = {"state_file": str(tmp_path / "none" / "state")}
    with pytest.raises(StateError, match="AV-STATE-WRITE"):
        tiny_engine(random_pair, block=block)


def test_a_second_server_goes_on_from_it_and_keeps_nothing(start: Start, path: Path) -> None:
    first = start(SCORERS[0])
    draw(first, 1.0, 20, draws=64)
    learnt = state_of(first)
    keeper.close(path)
    content = path.read_bytes()
    held = Claim(path)
    try:
        with logged_by(LOGGER) as records:
            second = start(SCORERS[0])
        (record,) = records
        assert "[AV-STATE-BUSY]" in record.getMessage()
        assert_equal(learnt, state_of(second))
        draw(second, 1.0, 8, draws=16)
        keeper.close(path)
        assert path.read_bytes() == content
    finally:
        held.release()


def test_a_link_stays_one(start: Start, path: Path) -> None:
    kept = path.with_name("kept")
    path.symlink_to(kept)
    draw(start(SCORERS[1]), 1.0, 8, draws=16)
    keeper.close(kept)
    assert path.is_symlink()
    assert not kept.is_symlink()
    assert kept.stat().st_size > 1000


def test_a_scorer_that_keeps_no_state(start: Start, path: Path) -> None:
    from vllm_av.seams.state import keep

    engine = start(SCORERS[1])
    keeper.close(path)
    path.unlink()
    vllm_config = engine.runner.speculator.vllm_config
    traits = SimpleNamespace(
        needs_draft_logits=True, needs_confidence_head=False, needs_drawn_tokens=False
    )
    guard: Any = GuardedScorer("theirs", SimpleNamespace(), traits)  # type: ignore[arg-type]
    named = AdaptiveVerificationConfig(scorer="theirs", state_file=str(path))
    with pytest.raises(StateError, match="AV-STATE-NONE"):
        keep(guard, vllm_config, named)
    # Where it was not named, the key may be meant for another checkpoint.
    with logged_by(LOGGER) as records:
        keep(guard, vllm_config, AdaptiveVerificationConfig(state_file=str(path)))
    (record,) = records
    assert "state_file is ignored: auto chose theirs" in record.getMessage()
    assert not path.exists()
