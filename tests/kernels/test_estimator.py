"""The estimator's kernels: compiled, in Triton's interpreter, in NumPy, and vLLM's own.

Long streams through predict and observe; the coefficients equal the NumPy reference's within 1e-4,
features and predictions within 1e-5.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.worker.gpu.spec_decode import acceptance_estimator as upstream

from tests.unit.estimator.streams import Upstream
from vllm_av.cpu.launcher import Launcher
from vllm_av.estimator import kernels
from vllm_av.estimator.formula import features, sigmoid
from vllm_av.estimator.online import OnlineEstimator, score_top_probability
from vllm_av.estimator.reference import ReferenceEstimator
from vllm_av.estimator.settings import EstimatorSettings

CPU = torch.device("cpu")
DEFAULT = EstimatorSettings()
SLOTS = 24
VOCAB = 64
KERNELS = ("partial_sums_kernel", "predict_kernel", "observe_kernel", "refit_kernel")


class Traffic:
    """Requests that come and go in slots, each with a temperature, and a target that accepts by a
    law of the drafter's log-odds at temperature 1; a fickle one turns it round at times."""

    def __init__(
        self, positions: int, temperatures: list[float], fickle: bool = False, slope: float = 0.7
    ) -> None:
        self.rng = np.random.default_rng(0)
        self.positions, self.slope, self.fickle, self.steps = positions, slope, fickle, 0
        self.temperature = self.rng.choice(temperatures, SLOTS)
        self.temperatures = temperatures
        self.mapping = np.zeros(0, np.int32)
        self.certainty = np.zeros((0, positions))

    def draft(self) -> Iterator[tuple[int, np.ndarray]]:
        """The rows of each draft step, for requests of this step and a padded row."""
        rng, count = self.rng, int(self.rng.integers(SLOTS // 2, SLOTS))
        self.mapping = np.append(rng.permutation(SLOTS)[:count], -1).astype(np.int32)
        self.temperature[rng.integers(SLOTS)] = rng.choice(self.temperatures)
        self.certainty = np.zeros((count + 1, self.positions))
        for k in range(self.positions):
            rows = rng.normal(0, 1, (count + 1, VOCAB)).astype(np.float32)
            rows[:, 3] += rng.uniform(2, 8, count + 1)
            self.certainty[:, k] = features(rows.astype(np.float64), np.ones(count + 1))
            yield k, rows

    def verdict(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sampled and rejected counts, and who may teach."""
        rng, count = self.rng, len(self.mapping)
        self.steps += 1
        turned = self.fickle and self.steps // 20 % 3 == 1
        score = (self.slope * self.certainty - 0.3) * (-1.0 if turned else 1.0)
        accepted = rng.random(score.shape) < sigmoid(score)
        run = np.logical_and.accumulate(accepted, axis=1).sum(axis=1)
        verified = rng.integers(0, self.positions + 1, count)
        run = np.minimum(run, verified)
        teaches = rng.random(count) < 0.9
        return (run + 1).astype(np.int32), (verified - run).astype(np.int32), teaches


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


def run(traffic: Traffic, steps: int, *estimators: Any) -> list[np.ndarray]:
    """The same stream for all; the probabilities that each wrote."""
    outs: list[np.ndarray] = [np.zeros((SLOTS, traffic.positions), np.float32) for _ in estimators]
    for _ in range(steps):
        for k, rows in traffic.draft():
            for estimator, out in zip(estimators, outs, strict=True):
                arrays = (
                    rows,
                    traffic.mapping,
                    np.array(k),
                    traffic.temperature.astype(np.float32),
                    out,
                )
                if isinstance(estimator, ReferenceEstimator):
                    estimator.predict(*arrays)
                else:
                    estimator.predict(*tensors(*arrays[:-1]), torch.from_numpy(out))
        verdict = traffic.verdict()
        for estimator in estimators:
            if isinstance(estimator, ReferenceEstimator):
                estimator.observe(traffic.mapping, *verdict)
            else:
                estimator.observe(*tensors(traffic.mapping, *verdict))
    return outs


def assert_same(ours: OnlineEstimator, reference: ReferenceEstimator) -> None:
    state = ours.snapshot()
    assert state["refits"].item() == ours.refits == reference.refits
    assert state["undone"].item() == reference.undone
    assert state["restarts"].item() == reference.restarts
    np.testing.assert_allclose(ours.features.numpy(), reference.features, atol=1e-5)
    np.testing.assert_allclose(ours.slope.item(), reference.slope, atol=1e-4)
    np.testing.assert_allclose(ours.intercepts.numpy(), reference.intercepts, atol=1e-4)
    np.testing.assert_array_equal(state["labels"].numpy(), reference._labels)
    np.testing.assert_array_equal(state["masked"].numpy(), reference.masked)


STREAMS: dict[str, Any] = {
    "default": (DEFAULT, 4, [1.0]),
    "one position": (DEFAULT, 1, [0.7]),
    "a fickle target": (replace(DEFAULT, refit_interval=20), 4, [1.0], True),
    "16 positions, every temperature": (DEFAULT, 16, [0.0, 0.01, 0.1, 0.5, 1.0, 2.0]),
    "own start, damping and N": (
        EstimatorSettings(
            refit_interval=17,
            damping=8.0,
            ridge=0.01,
            initial_slope=0.9,
            initial_intercepts=(0.4, 0.0, -0.3, 1.0, -2.0),
            log_odds_clamp=30.0,
        ),
        5,
        [1.0, 0.7],
    ),
    "temperature 0.01": (replace(DEFAULT, refit_interval=20), 3, [0.01]),
    "temperature 0.1": (replace(DEFAULT, refit_interval=25), 7, [0.1]),
    "short rounds": (replace(DEFAULT, refit_interval=2), 4, [0.3, 1.0]),
    "no damping, no ridge": (replace(DEFAULT, damping=0.0, ridge=0.0, refit_interval=10), 2, [0.1]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_long_streams_equal_the_reference(name: str) -> None:
    settings, positions, *law = STREAMS[name]
    ours = OnlineEstimator(settings, SLOTS, positions, CPU)
    reference = ReferenceEstimator(settings, SLOTS, positions)
    traffic = Traffic(positions, *law)
    for _ in range(6):
        outs = run(traffic, 50, ours, reference)
        np.testing.assert_allclose(outs[0], outs[1], atol=1e-5)
        assert_same(ours, reference)
    assert ours.refits == 300 // settings.refit_interval
    assert abs(reference.slope - settings.initial_slope) > 0.01


def test_the_streams_take_every_turn() -> None:
    """Undone steps and restarts occur in what is compared above."""
    undone = restarts = 0
    for settings, positions, *law in STREAMS.values():
        reference = ReferenceEstimator(settings, SLOTS, positions)
        run(Traffic(positions, *law), 300, reference)
        undone, restarts = undone + reference.undone, restarts + reference.restarts
    assert undone > 1
    assert restarts > 1


def test_sound_streams_equal_vllms_own() -> None:
    """Its constants are class attributes; the defaults here are the same numbers."""
    theirs = upstream.OnlineAcceptanceEstimator(SLOTS, 4, CPU)
    assert (
        EstimatorSettings(
            theirs.REFIT_INTERVAL,
            theirs.DAMPING_OBSERVATIONS,
            theirs.L2,
            upstream._INIT_SLOPE,
            upstream._INIT_BIAS,
            upstream._MAX_LOG_ODDS,
        )
        == DEFAULT
    )
    theirs.REFIT_INTERVAL = 40
    theirs.DAMPING_OBSERVATIONS = 20.0
    settings = replace(DEFAULT, refit_interval=40, damping=20.0)
    ours = OnlineEstimator(settings, SLOTS, 4, CPU)
    stream = Traffic(4, [1.0], slope=0.6)
    for _ in range(6):
        outs = run(stream, 40, ours, _Unpadded(theirs))
        np.testing.assert_allclose(outs[0], outs[1], atol=1e-5)
        np.testing.assert_allclose(ours.slope, theirs.slope, atol=1e-4)
        np.testing.assert_allclose(ours.intercepts, theirs.intercepts, atol=1e-4)
    assert abs(ours.slope.item() - 0.5) > 0.02


class _Unpadded:
    """vLLM's estimator is never handed padding in ``observe``."""

    def __init__(self, estimator: Any) -> None:
        self.predict = estimator.predict
        self.estimator = estimator

    def observe(self, mapping: Any, sampled: Any, rejected: Any, mask: Any) -> None:
        real = mapping >= 0
        target_only = torch.where(mask, 0, 4).int()
        self.estimator.observe(mapping[real], sampled[real], rejected[real], target_only[real])


def test_the_copy_of_upstreams_step_is_right() -> None:
    """The one that the unit tests compare with, on a stream where it fails."""
    theirs = upstream.OnlineAcceptanceEstimator(SLOTS, 3, CPU)
    theirs.REFIT_INTERVAL = 1
    copy = Upstream(DEFAULT, 3)
    rng = np.random.default_rng(0)
    for _ in range(6):
        feature = np.clip(rng.normal(10, 15, (SLOTS, 3)), -40, 40).astype(np.float32)
        score = copy.slope * feature + copy.intercepts
        theirs.features.copy_(torch.from_numpy(feature))
        theirs.predictions.copy_(torch.from_numpy(sigmoid(score)))
        accepted = rng.integers(0, 4, SLOTS)
        theirs.observe(*tensors(np.arange(SLOTS), accepted + 1, 3 - accepted))
        k = np.arange(3)
        label = (k < accepted[:, None]).astype(float)
        copy.round(feature.astype(float), label, k <= accepted[:, None])
        np.testing.assert_allclose(theirs.slope.item(), copy.slope, rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(theirs.intercepts, copy.intercepts, rtol=2e-3, atol=1e-2)


# -- features


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocab", [5, 4096, 10_000])
def test_features(dtype: torch.dtype, vocab: int) -> None:
    """Every shape of row: certain, tied, without a distribution; at every temperature."""
    count = 48
    logits = torch.randn(count, vocab) * 4
    logits[::3, 2] += torch.rand(16) * 60
    logits[5] = -math.inf
    logits[6, 3] = math.nan
    logits[7, 1] = math.inf
    logits[8], logits[8, 4] = -math.inf, 1.0
    logits[9, [1, 3]] = logits[9].max() + 20  # twins
    logits[10] = 3.0
    logits[11, [0, -1]] = 90.0
    logits = logits.to(dtype)
    temperature = torch.tensor([0.0, 1.0, 0.01, 0.3, 2.0, 0.7, 0.1, 1.5]).repeat(6)
    estimator = OnlineEstimator(DEFAULT, count, 1, CPU)
    out = torch.zeros(count, 1)
    estimator.predict(logits, torch.arange(count), torch.tensor(0), temperature, out)
    expected = features(logits.double().numpy(), temperature.numpy())
    np.testing.assert_allclose(estimator.features[:, 0], expected, atol=1e-5)
    unknown = np.isnan(expected)
    assert unknown.nonzero()[0].tolist() == [5, 6, 7]
    predicted = np.where(unknown, 1.0, sigmoid(0.5 * expected - 0.2))
    np.testing.assert_allclose(out[:, 0], predicted, atol=1e-5)
    top = torch.full((count, 1), -1.0)
    score_top_probability(logits, torch.arange(count), torch.tensor(0), temperature, top)
    shown = logits.double() / torch.where(temperature > 0, temperature, 1.0)[:, None]
    shown = np.where(unknown, 1.0, shown.softmax(-1).amax(-1))
    np.testing.assert_allclose(top[:, 0], shown, atol=1e-6)


def test_rows_of_a_whole_block_and_of_one_step() -> None:
    logits, mapping = torch.randn(2 * 3, 500), torch.tensor([4, 2])
    temperature = torch.rand(6) + 0.3
    whole, one = (OnlineEstimator(DEFAULT, 6, 3, CPU) for _ in range(2))
    outs = torch.full((2, 4, 3), -1.0)
    steps = torch.arange(3).repeat(2)
    whole.predict(logits, mapping.repeat_interleave(3), steps, temperature, outs[0])
    for k in range(3):
        one.predict(logits[k::3], mapping, torch.tensor(k), temperature, outs[1])
    assert torch.equal(outs[0], outs[1])
    assert (outs[:, 2:] == -1.0).all()
    assert torch.equal(whole.features, one.features)


def test_padding_is_left_alone() -> None:
    estimator = OnlineEstimator(DEFAULT, 3, 2, CPU)
    out = torch.full((3, 2), -1.0)
    slots, none = torch.tensor([-1, 2, -1]), torch.tensor([-1, -1, -1])
    for score in (estimator.predict, score_top_probability):
        out.fill_(-1.0)
        score(torch.randn(3, 40), slots, torch.tensor(1), torch.ones(3), out)
        assert (out >= 0).nonzero().tolist() == [[1, 1]]
    four = torch.full((3,), 3, dtype=torch.int32)
    estimator.observe(none, four, four * 0)
    assert estimator.snapshot()["labels"].tolist() == [0, 0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("row", range(6))
def test_coefficients_stay_finite_whatever_a_round_holds(row: int, value: float) -> None:
    """No row can bring this about; a fault of the device might."""
    estimator = OnlineEstimator(replace(DEFAULT, refit_interval=3), SLOTS, 4, CPU)
    traffic = Traffic(4, [1.0])
    for poisoned in (True, False):
        run(traffic, 2, estimator)
        if poisoned:
            estimator._sums[kernels.NOW + row, 1] = value
        run(traffic, 1, estimator)
        assert estimator.slope.isfinite()
        assert estimator.intercepts.isfinite().all()
        assert estimator._scalars.isfinite().all()
    assert estimator.refits == 2
    assert estimator.slope.item() != 0.5
    assert estimator._sums[:12].eq(0).all()


# -- what serving relies on


def test_buffers_stay_where_they_are() -> None:
    """A captured CUDA graph reads them."""
    estimator = OnlineEstimator(replace(DEFAULT, refit_interval=1), SLOTS, 4, CPU)
    names = ("slope", "intercepts", "features", "scores", "_slopes", "_intercepts", "_sums")
    places = {name: getattr(estimator, name).data_ptr() for name in names}
    run(Traffic(4, [1.0]), 3, estimator)
    assert {name: getattr(estimator, name).data_ptr() for name in names} == places
    assert estimator.slope.item() != 0.5
    assert (estimator.intercepts != -0.2).any()


def test_a_snapshot_is_a_copy() -> None:
    estimator = OnlineEstimator(replace(DEFAULT, refit_interval=1), SLOTS, 4, CPU)
    before = estimator.snapshot()
    run(Traffic(4, [1.0]), 3, estimator)
    after = estimator.snapshot()
    assert before["slope"].item() == 0.5
    assert {name: tuple(value.shape) for name, value in after.items()} == {
        "slope": (1,),
        "intercepts": (4,),
        "labels": (4,),
        "masked": (4,),
        "rates": (4,),
        "refits": (1,),
        "undone": (1,),
        "restarts": (1,),
    }
    assert after["refits"].item() == 3
    assert after["rates"].isfinite().all()


def test_the_size_of_a_batch_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither here nor on a GPU, where an integer that is 1 or divisible by 16 is a variant of its
    own, unless the kernel says that it shall not be."""
    variants: defaultdict[str, set[tuple[Any, ...]]] = defaultdict(set)
    real = Launcher.__call__

    def noted(self: Launcher, grid: Any, args: Any, kwargs: Any) -> None:
        values = zip(self._jit.params, self._bind(args, kwargs), strict=True)
        variants[self.name].add(
            tuple(v for p, v in values if isinstance(v, int) and not p.do_not_specialize)
        )
        real(self, grid, args, kwargs)

    monkeypatch.setattr(Launcher, "__call__", noted)
    estimator = OnlineEstimator(replace(DEFAULT, refit_interval=1), SLOTS, 2, CPU)
    for count in (1, 7, 16, 24):
        mapping = torch.arange(count, dtype=torch.int32)
        logits, out = torch.randn(count, VOCAB), torch.zeros(count, 2)
        estimator.predict(logits, mapping, torch.tensor(0), torch.ones(SLOTS), out)
        estimator.observe(mapping, mapping * 0 + 2, mapping * 0, mapping >= 0)
    assert {name: len(found) for name, found in variants.items()} == dict.fromkeys(KERNELS, 1)


def test_launches_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two a prediction, one an observation, one more a refit: as many as vLLM's."""
    names: list[str] = []
    real = Launcher.__call__

    def noted(self: Launcher, *rest: Any) -> None:
        names.append(self.name)
        real(self, *rest)

    monkeypatch.setattr(Launcher, "__call__", noted)
    estimator = OnlineEstimator(replace(DEFAULT, refit_interval=2), SLOTS, 1, CPU)
    run(Traffic(1, [1.0]), 2, estimator)
    assert names == [*KERNELS[:3], *KERNELS]


def test_compiled_and_interpreted(compared: Any) -> None:
    """Every kernel, with and without a mask, in rounds that take different turns."""
    settings = replace(DEFAULT, refit_interval=3, initial_intercepts=(0.3, -0.1, -0.2))
    estimator = OnlineEstimator(settings, SLOTS, 3, CPU)
    run(Traffic(3, [0.0, 0.1, 1.0]), 9, estimator)
    mapping = torch.arange(4)
    score_top_probability(
        torch.randn(4, VOCAB), mapping, torch.tensor(1), torch.ones(SLOTS), torch.zeros(4, 3)
    )
    estimator.observe(mapping, mapping, mapping)
    assert set(compared.launches) == set(KERNELS)
