"""The kernels of the estimator for mixed traffic, against its NumPy reference: coefficients and
probabilities within 1e-4 (bar; 1e-5 here), whatever the shapes, the types and the logits.
"""

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.worker.gpu.spec_decode import acceptance_estimator as upstream

from tests.traffic import (
    CPU,
    coefficients,
    observe,
    observe_reference,
    predict,
    predict_reference,
    run,
    traffic,
)
from vllm_av.cpu.launcher import Launcher
from vllm_av.estimator.online import OnlineEstimator
from vllm_av.estimator.settings import MIXED
from vllm_av.estimator.tempered import kernels
from vllm_av.estimator.tempered.online import TemperedEstimator
from vllm_av.estimator.tempered.reference import TemperedReference

QUICK = replace(MIXED, refit_interval=5, memory=300.0)
NOTHING = -7.0


def compare(settings: Any, steps: Any, slots: int, positions: int, *, block: bool = False) -> None:
    """Drive both, and hold one to the other after each step."""
    ours = TemperedEstimator(settings, slots, positions, CPU)
    reference = TemperedReference(settings, slots, positions)
    out = torch.full((slots, positions), NOTHING)
    expected = np.full((slots, positions), NOTHING)
    for step in steps:
        predict(ours, step, out, block=block)
        predict_reference(reference, step, expected)
        np.testing.assert_allclose(out, expected, atol=1e-5)
        observe(ours, step)
        observe_reference(reference, step)
        np.testing.assert_allclose(coefficients(ours), reference.coefficients, atol=1e-5)
    state = ours.snapshot()
    assert state["refits"].item() == reference.refits >= 3
    assert state["masked"].item() == reference.masked > 0
    np.testing.assert_allclose(state["labels"], reference.labels[-positions:], atol=1e-6)
    assert np.abs(reference.coefficients - reference.start).max() > 0.05
    assert ((expected >= 0) & (expected <= 1) | (expected == NOTHING)).all()


STREAMS: dict[str, Any] = {
    "one position, a vocabulary of 1": (QUICK, 40, 24, 1, 1, torch.float32),
    "one position, a vocabulary of 2": (QUICK, 40, 24, 1, 2, torch.bfloat16),
    "5 positions, 1,023 tokens": (QUICK, 40, 16, 5, 1023, torch.float32),
    "5 positions, 3,001 tokens, half": (QUICK, 40, 16, 5, 3001, torch.float16),
    "7 positions, 50,257 tokens": (QUICK, 30, 12, 7, 50_257, torch.bfloat16),
    "16 positions, 1,025 tokens": (QUICK, 30, 16, 16, 1025, torch.float32),
    "own start, no damping, short memory": (
        replace(
            MIXED,
            refit_interval=1,
            damping=0.0,
            memory=10.0,
            initial_slope=0.9,
            initial_intercepts=(0.4, 0.0, -0.3),
            log_odds_clamp=6.0,
        ),
        60,
        16,
        3,
        100,
        torch.float32,
    ),
    "the default, one request": (MIXED, 300, 1, 5, 50, torch.float32),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_equal_the_reference(name: str) -> None:
    settings, steps, slots, positions, vocab, dtype = STREAMS[name]
    made = traffic(steps, slots=slots, positions=positions, vocab=vocab, dtype=dtype, odd=True)
    compare(settings, made, slots, positions)


def test_blocks_equal_the_reference() -> None:
    compare(QUICK, traffic(40, slots=16, positions=5, vocab=300, odd=True), 16, 5, block=True)


def test_more_requests_than_one_block_of_them() -> None:
    compare(QUICK, traffic(12, slots=300, positions=2, vocab=20, odd=True), 300, 2)


def test_whole_blocks_and_single_steps_come_to_the_same_bits() -> None:
    outs = []
    for block in (False, True):
        estimator, out = TemperedEstimator(QUICK, 16, 5, CPU), torch.full((20, 5), NOTHING)
        made = traffic(20, slots=16, positions=5, vocab=300, odd=True)
        outs.append(np.stack(run(estimator, made, out, block=block)))
        assert (out[16:] == NOTHING).all()
    assert (outs[0] == outs[1]).all()


def test_strides() -> None:
    """Logits, out and slots that lie in wider tensors."""
    step = next(iter(traffic(1, slots=6, positions=3, vocab=70)))
    plain, strided = (TemperedEstimator(QUICK, 6, 3, CPU) for _ in range(2))
    out = torch.full((6, 3), NOTHING)
    predict(plain, step, out)
    wide, buffer = torch.full((6, 3, 200), 90.0), torch.full((6, 8), NOTHING)
    wide[:, :, 64:134] = step.logits
    mapping = torch.from_numpy(step.mapping)
    twice = torch.stack([mapping, mapping * 0 - 1], dim=1)[:, 0]
    assert twice.stride(0) == 2
    temperature = torch.from_numpy(step.temperature)
    for k in range(3):
        rows = wide[:, k, 64:134]
        strided.predict(rows, twice, torch.tensor(k), temperature, buffer[:, 2:5])
    assert torch.equal(buffer[:, 2:5], out)
    assert (buffer[:, [0, 1, 5, 6, 7]] == NOTHING).all()


@pytest.mark.parametrize("whose", ["int32", "int64"])
def test_types_of_integers(whose: str) -> None:
    dtype = getattr(torch, whose)
    ours, twin = (TemperedEstimator(QUICK, 8, 3, CPU) for _ in range(2))
    out = torch.zeros(2, 8, 3)
    for step in traffic(8, slots=8, positions=3, vocab=40):
        predict(ours, step, out[0])
        observe(ours, step)
        predict(twin, step, out[1])
        mapping, sampled, rejected = (
            torch.from_numpy(a).to(dtype) for a in (step.mapping, step.sampled, step.rejected)
        )
        mask = None if step.mask is None else torch.from_numpy(step.mask)
        twin.observe(mapping, sampled, rejected, mask)
    assert torch.equal(out[0], out[1])
    assert (coefficients(ours) == coefficients(twin)).all()


@pytest.mark.parametrize("count", [0, 3])
def test_nobody_is_there(count: int) -> None:
    """An empty batch, and one of padding alone: counted as steps, and nothing else."""
    estimator = TemperedEstimator(replace(QUICK, refit_interval=1), 4, 2, CPU)
    out = torch.full((4, 2), NOTHING)
    none = torch.full((count,), -1, dtype=torch.int32)
    for steps in (torch.tensor(1), torch.arange(2).repeat(count)[:count]):
        estimator.predict(torch.randn(count, 40), none, steps, torch.ones(4), out)
        for mask in (None, none < 0):
            estimator.observe(none, none * 0 + 2, none * 0 + 1, mask)
    assert (out == NOTHING).all()
    state = estimator.snapshot()
    assert [state[name].sum().item() for name in ("labels", "masked", "refits")] == [0, 0, 0]
    assert estimator.decode_steps == 4


# -- features


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocab", [5, 4096, 10_000])
def test_features(dtype: torch.dtype, vocab: int) -> None:
    """Against a softmax in float64, and vLLM's own estimator at temperature 1."""
    count = 48
    logits = torch.randn(count, vocab) * 4
    logits[::3, 2] += torch.rand(16) * 30
    logits[9, [1, 3]] = logits[9].max() + 5  # twins
    logits[10] = 3.0
    logits[11, [0, -1]] = 90.0
    logits[12], logits[12, 4] = -torch.inf, 1.0
    logits = logits.to(dtype)
    temperature = torch.rand(count) * 2
    estimator = TemperedEstimator(MIXED, count, 1, CPU)
    out = torch.zeros(count, 1)
    estimator.predict(logits, torch.arange(count), torch.tensor(0), temperature, out)
    found = estimator.features[:, 0].double()

    q = logits.double().softmax(-1).sort(descending=True).values
    # Without the top token, of which float64 leaves nothing in 1 - q either.
    rest = q[:, 1:].sum(-1)
    log_odds = (q[:, 0] / rest).log().clamp(-40, 40)
    margin = (q[:, 0] / q[:, 1]).log().clamp(max=40)
    np.testing.assert_allclose(found[:, 0], log_odds, atol=1e-5)
    np.testing.assert_allclose(found[:, 1], margin, atol=2e-5)
    np.testing.assert_array_equal(found[[9, 10, 11], 1], 0.0)
    assert out.isfinite().all()

    theirs = upstream.OnlineAcceptanceEstimator(count, 1, CPU)
    ones = torch.ones(count)
    theirs.predict(logits, torch.arange(count), torch.tensor(0), ones, torch.zeros(count, 1))
    sound = log_odds.abs() < 8  # beyond, upstream subtracts 1 from 1
    assert sound.sum() > 10
    np.testing.assert_allclose(theirs.features[sound, 0], found[sound, 0], rtol=1e-3, atol=1e-3)


# -- what serving relies on


def kernels_of(estimator: Any, counts: tuple[int, ...], monkeypatch: Any) -> dict[str, set[Any]]:
    """The variants that batches of these sizes need, by kernel. On a GPU an integer that is 1 or
    divisible by 16 is a variant of its own, unless the kernel says that it shall not be."""
    variants: dict[str, set[Any]] = {}
    real = Launcher.__call__

    def noted(self: Launcher, grid: Any, args: Any, kwargs: Any) -> None:
        values = zip(self._jit.params, self._bind(args, kwargs), strict=True)
        of = variants.setdefault(self.name, set())
        of.add(tuple(v for p, v in values if isinstance(v, int) and not p.do_not_specialize))
        real(self, grid, args, kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Launcher, "__call__", noted)
        for count in counts:
            mapping = torch.arange(count, dtype=torch.int32)
            logits, out = torch.randn(count, 40), torch.zeros(count, 2)
            estimator.predict(logits, mapping, torch.tensor(0), torch.ones(600), out)
            estimator.observe(mapping, mapping * 0 + 2, mapping * 0, mapping >= 0)
    return variants


def test_the_size_of_a_batch_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (TemperedEstimator, OnlineEstimator):
        estimator = kind(replace(QUICK, refit_interval=1), 600, 2, CPU)
        found = kernels_of(estimator, (1, 7, 16, 255, 257, 512, 513, 600), monkeypatch)
        assert {name: len(variants) for name, variants in found.items()} == dict.fromkeys(found, 1)
        assert {"observe_kernel", "refit_kernel"} < set(found)


def test_twice_the_same_bits() -> None:
    outs = []
    for _ in range(2):
        estimator, out = TemperedEstimator(QUICK, 16, 5, CPU), torch.zeros(16, 5)
        made = traffic(20, slots=16, positions=5, vocab=300, odd=True)
        outs.append((np.stack(run(estimator, made, out)), coefficients(estimator)))
    assert (outs[0][0] == outs[1][0]).all()
    assert (outs[0][1] == outs[1][1]).all()


def test_compiled_and_interpreted(compared: Any) -> None:
    """Every kernel, with and without a mask, before and after the first refit."""
    estimator = TemperedEstimator(replace(QUICK, refit_interval=1), 32, 2, CPU)
    made = traffic(12, slots=32, positions=2, vocab=40, odd=True)
    run(estimator, made, torch.zeros(32, 2))
    assert 1 < estimator.snapshot()["refits"].item() < 12
    predicting = {"partial_sums_kernel", "feature_kernel", "score_kernel"}
    assert set(compared.launches) == predicting | {"observe_kernel", "refit_kernel"}


def guarded(tensor: torch.Tensor) -> torch.Tensor:
    """A copy at the end of its memory: whoever reads beyond it ends the process."""
    page = mmap.PAGESIZE
    size = -(-tensor.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect: Callable[..., int] = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(base + size), ctypes.c_size_t(page), 0) == 0
    copy = torch.frombuffer(
        memory, dtype=tensor.dtype, count=tensor.numel(), offset=size - tensor.nbytes
    )
    return copy.view(tensor.shape).copy_(tensor)


def test_nothing_is_read_beyond_the_buffers() -> None:
    """Five positions in blocks of eight lanes: what lies behind the buffers may be nobody's."""
    estimator = TemperedEstimator(replace(QUICK, refit_interval=1), 24, 5, CPU)
    made = list(traffic(9, slots=24, positions=5, vocab=40))
    twin = TemperedEstimator(replace(QUICK, refit_interval=1), 24, 5, CPU)
    for name, value in vars(estimator).items():
        if isinstance(value, torch.Tensor):
            setattr(estimator, name, guarded(value))
    run(estimator, made, torch.zeros(24, 5))
    run(twin, made, torch.zeros(24, 5))
    assert twin.snapshot()["refits"].item() > 0
    assert (coefficients(estimator) == coefficients(twin)).all()


def test_a_round_that_is_not_finite_is_forgotten() -> None:
    """No row can bring this about; a fault of the device might."""
    for place in range(kernels.SUMS):
        estimator = TemperedEstimator(replace(QUICK, refit_interval=1), 24, 2, CPU)
        made = list(traffic(24, slots=24, positions=2, vocab=40))
        run(estimator, made[:10], torch.zeros(24, 2))
        before = coefficients(estimator)
        estimator._sums[1, 0, place] = torch.nan if place % 2 else torch.inf
        run(estimator, made[10:], torch.zeros(24, 2))
        after = coefficients(estimator)
        assert np.isfinite(after).all()
        assert (after != before).any()
        assert all(value.isfinite().all() for value in estimator.state_tensors().values())
