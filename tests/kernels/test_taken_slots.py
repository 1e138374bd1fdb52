"""A slot that a new request has taken: what was scored there before teaches nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vllm_av.cpu import install
from vllm_av.estimator.online import OnlineEstimator
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.estimator.tempered.online import TemperedEstimator
from vllm_av.scorers.guard import GuardedScorer

SLOTS, STEPS = 6, 3
CPU = torch.device("cpu")


def drafted(kind: Callable[..., Any]) -> Any:
    install()
    estimator = kind(EstimatorSettings(), SLOTS, STEPS, CPU)
    slots, out = torch.arange(SLOTS, dtype=torch.int32), torch.zeros(SLOTS, STEPS)
    for step in range(STEPS):
        logits = torch.randn(SLOTS, 50, generator=torch.Generator().manual_seed(step))
        estimator.predict(logits, slots, torch.tensor(step), torch.ones(SLOTS), out)
    return estimator


def graded(estimator: Any, slots: list[int]) -> list[torch.Tensor]:
    """The state after each of ``slots`` had its first draft rejected."""
    sampled = torch.ones(len(slots), dtype=torch.int32)
    estimator.observe(torch.tensor(slots, dtype=torch.int32), sampled, STEPS * sampled)
    return [value.clone() for value in estimator.state_tensors().values()]


@pytest.mark.parametrize("kind", [OnlineEstimator, TemperedEstimator])
def test_it_teaches_nothing(kind: Callable[..., Any]) -> None:
    taken, other, left_out = (drafted(kind) for _ in range(3))
    taken.add_request(2)
    found = graded(taken, [0, 2, 4])
    assert all(map(torch.equal, found, graded(left_out, [0, 4])))
    # And it would have.
    assert not all(map(torch.equal, found, graded(other, [0, 2, 4])))
    # What the new request drafts teaches.
    out = torch.zeros(SLOTS, STEPS)
    for step in range(STEPS):
        logits = torch.randn(1, 50)
        taken.predict(
            logits, torch.tensor([2], dtype=torch.int32), torch.tensor(step), torch.ones(SLOTS), out
        )
    assert not all(map(torch.equal, found, graded(taken, [2])))


def test_a_scorer_of_another_package_need_not_know() -> None:
    GuardedScorer("theirs", object(), _traits()).add_request(1)
    told: list[int] = []

    class Theirs:
        add_request = staticmethod(told.append)

    GuardedScorer("theirs", Theirs(), _traits()).add_request(3)
    assert told == [3]


def _traits() -> Any:
    from vllm_av.scorers.max_probability import MaxProbability
    from vllm_av.scorers.traits import traits_of

    return traits_of("theirs", MaxProbability)
