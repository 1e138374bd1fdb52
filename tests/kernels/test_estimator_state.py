"""What an estimator has learnt outlives it to the last bit, and only what one could have learnt."""

from pathlib import Path

import pytest
import torch

from vllm_av.estimator.online import OnlineEstimator
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.state import file, keeper


def learnt() -> OnlineEstimator:
    estimator = OnlineEstimator(EstimatorSettings(refit_interval=4), 8, 3, torch.device("cpu"))
    feed(estimator, 0, 10)
    return estimator


def feed(estimator: OnlineEstimator, seed: int, steps: int) -> torch.Tensor:
    """Predictions and verdicts; the last predictions."""
    make = torch.Generator().manual_seed(seed)
    slots, out = torch.arange(8), torch.zeros(8, 3)
    for _ in range(steps):
        for k in range(3):
            logits = torch.randn(8, 20, generator=make) * 3
            estimator.predict(logits, slots, torch.tensor(k), torch.ones(8), out)
        accepted = torch.randint(0, 4, (8,), generator=make, dtype=torch.int32)
        estimator.observe(slots, accepted + 1, 3 - accepted)
    return out


def test_an_estimator_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    first, path = learnt(), tmp_path / "state"
    keeper.Keeper(first, path, {}, print)
    keeper.close(path)
    second = OnlineEstimator(first.settings, 8, 3, torch.device("cpu"))
    keeper.load(second, file.read(path, {}))
    for name, value in first.snapshot().items():
        torch.testing.assert_close(second.snapshot()[name], value, rtol=0, atol=0, equal_nan=True)
    # In the middle of a round: also what was summed so far goes on.
    assert torch.equal(feed(first, 1, 9), feed(second, 1, 9))
    assert first.refits == second.refits == 4


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("slopes", float("nan"), "not finite"),
        ("intercepts", float("inf"), "not finite"),
        ("slopes", -0.5, "negative"),
        ("counters", -1, "negative"),
    ],
)
def test_an_estimator_refuses_a_state_that_none_was_in(name: str, value: float, told: str) -> None:
    arrays = {key: tensor.numpy().copy() for key, tensor in learnt().state_tensors().items()}
    arrays[name].flat[0] = value
    fresh = OnlineEstimator(EstimatorSettings(refit_interval=4), 8, 3, torch.device("cpu"))
    before = fresh.snapshot()
    with pytest.raises(ValueError, match=told):
        keeper.load(fresh, arrays)
    for key, tensor in fresh.snapshot().items():
        torch.testing.assert_close(tensor, before[key], rtol=0, atol=0, equal_nan=True)
