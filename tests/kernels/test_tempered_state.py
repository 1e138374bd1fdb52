"""What serving relies on: what may not teach leaves no trace, buffers stay where they are, nothing
waits for the device, a restart changes no bit, and no logits break anything.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.traffic import CPU, Step, coefficients, observe, predict, run, state, traffic
from vllm_av.cpu.launcher import Launcher
from vllm_av.estimator.settings import MIXED
from vllm_av.estimator.tempered.online import TemperedEstimator

QUICK = replace(MIXED, refit_interval=5, memory=300.0)
SLOTS, STEPS, VOCAB = 24, 3, 70


def estimator(**numbers: Any) -> TemperedEstimator:
    return TemperedEstimator(replace(QUICK, **numbers), SLOTS, STEPS, CPU)


def made(steps: int, **changes: Any) -> list[Step]:
    shape = {"slots": SLOTS, "positions": STEPS, "vocab": VOCAB, "odd": True}
    return list(traffic(steps, **(shape | changes)))


# -- what may not teach


def without(step: Step) -> Step:
    """The rows that may teach alone, the others gone from the batch."""
    return step if step.mask is None else replace(step.part(step.mask), mask=None)


def padded(step: Step) -> Step:
    """The others turned into padding."""
    mapping = step.mapping if step.mask is None else np.where(step.mask, step.mapping, -1)
    return replace(step, mapping=mapping, mask=None)


def shuffled(step: Step) -> Step:
    """The same rows in another order."""
    return step.part(np.random.default_rng(1).permutation(len(step.mapping)))


@pytest.mark.parametrize("change", [without, padded, shuffled])
def test_rows_that_may_not_teach_leave_no_trace(change: Any) -> None:
    """Every bit of what is learnt is that of the same stream without these rows."""
    masked, plain = estimator(), estimator()
    out, probabilities = torch.zeros(2, SLOTS, STEPS), 0
    steps = made(60)
    for step in steps:
        predict(masked, step, out[0])
        observe(masked, step)
        other = change(step)
        predict(plain, other, out[1])
        observe(plain, other)
        probabilities += int((out[0] > 0).sum())
    ours, theirs = state(masked), state(plain)
    held_back = masked.snapshot()["masked"].item()
    counted = plain.snapshot()["masked"].item()
    assert held_back > 100
    assert counted == (held_back if change is shuffled else 0)
    del ours["masked"], theirs["masked"]
    assert ours == theirs
    assert (coefficients(masked) == coefficients(plain)).all()
    assert masked.snapshot()["refits"].item() > 10


def test_who_is_never_allowed_to_teach_teaches_nothing() -> None:
    one = estimator()
    before = state(one)
    steps = [replace(step, mask=np.zeros(SLOTS, bool)) for step in made(8)]
    run(one, steps, torch.zeros(SLOTS, STEPS))
    after = state(one)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"masked", "counters"}
    expected = sum(
        int(
            ((step.sampled > 1) * (step.sampled - 1) + (step.rejected > 0))[step.mapping >= 0].sum()
        )
        for step in made(8, odd=False)
    )
    two = estimator()
    run(
        two,
        [replace(step, mask=np.zeros(SLOTS, bool)) for step in made(8, odd=False)],
        torch.zeros(SLOTS, STEPS),
    )
    assert two.snapshot()["masked"].item() == expected


# -- in place, and without waiting


class Watched(TorchDispatchMode):
    """Notes every operation of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_nothing_but_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No operation of torch's but the making of a buffer, so none that waits for the device; and
    as many launches for every step, whatever the data."""
    launches: list[list[str]] = []
    real = Launcher.__call__

    def noted(self: Launcher, *rest: Any) -> None:
        launches[-1].append(self.name)
        real(self, *rest)

    monkeypatch.setattr(Launcher, "__call__", noted)
    one = estimator(refit_interval=1)
    out = torch.zeros(SLOTS, STEPS)
    for number, step in enumerate(made(6)):
        inputs = [torch.from_numpy(a) for a in (step.mapping, step.sampled, step.rejected)]
        mask = torch.from_numpy(step.mapping >= 0) if number % 2 else None
        temperature = torch.from_numpy(step.temperature)
        rows = [(step.logits[:, k], torch.tensor(k)) for k in range(STEPS)]
        launches.append([])
        with Watched() as watched:
            for logits, k in rows:
                one.predict(logits, inputs[0], k, temperature, out)
            one.observe(*inputs, mask)
        assert watched.seen <= {"aten::empty"}
    assert all(each == launches[0] for each in launches)
    assert launches[0].count("observe_kernel") == launches[0].count("refit_kernel") == 1


def test_buffers_stay_where_they_are() -> None:
    """A captured CUDA graph reads them."""
    one, out = estimator(refit_interval=1), torch.zeros(SLOTS, STEPS)

    def places() -> dict[str, int]:
        tensors = {k: v for k, v in vars(one).items() if isinstance(v, torch.Tensor)}
        return {name: value.data_ptr() for name, value in tensors.items()}

    before, values = places(), coefficients(one)
    run(one, made(20), out)
    one.load_state({name: value.clone() for name, value in one.state_tensors().items()})
    assert places() == before
    assert len(before) > 8
    assert (coefficients(one) != values).any()


def test_a_snapshot_is_a_copy() -> None:
    one = estimator(refit_interval=1)
    before = one.snapshot()
    kept = {name: value.clone() for name, value in before.items()}
    run(one, made(30), torch.zeros(SLOTS, STEPS))
    assert all(torch.equal(before[name], kept[name]) for name in kept)
    after = one.snapshot()
    assert after["refits"].item() > 2
    assert after["labels"].tolist() > [64, 0, 0]
    assert {name: value.isfinite().all().item() for name, value in after.items()} == dict.fromkeys(
        after, True
    )
    assert len(after["knots"]) == len(after["levels"]) == len(after["slopes"])


# -- a restart


@pytest.mark.parametrize("stop", [1, 4, 9, 23])
def test_a_restart_changes_no_bit(stop: int) -> None:
    """Within a round, at its end, before the first refit: what follows is as without the stop."""
    steps = made(40)
    whole, first, second = estimator(), estimator(), estimator()
    out = torch.zeros(SLOTS, STEPS)
    run(whole, steps[:stop], out)
    run(first, steps[:stop], out)
    second.load_state({name: value.clone() for name, value in first.state_tensors().items()})
    assert state(second) == state(whole)
    for step in steps[stop:]:
        outs = [run(each, [step], torch.zeros(SLOTS, STEPS))[0] for each in (whole, second)]
        assert (outs[0] == outs[1]).all()
    assert state(second) == state(whole)
    assert whole.snapshot()["refits"].item() > 5


def test_a_state_holds_live_tensors_and_no_slots() -> None:
    one = estimator()
    tensors = one.state_tensors()
    assert all(
        tensors[name] is value for name, value in one.state_tensors().items() if name != "counters"
    )
    assert not any(SLOTS in value.shape for value in tensors.values())
    other = TemperedEstimator(replace(QUICK, log_odds_clamp=9.0), 2, STEPS, CPU).state_kind
    assert other != one.state_kind == estimator(damping=3.0).state_kind


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("coefficients", math.nan),
        ("curvature", math.inf),
        ("labels", -1.0),
        ("sums", math.nan),
        ("counters", -1),
    ],
)
def test_a_state_that_nobody_was_in_is_refused(name: str, value: float) -> None:
    one = estimator(refit_interval=1)
    run(one, made(6), torch.zeros(SLOTS, STEPS))
    before = state(one)
    wrong = {key: tensor.clone() for key, tensor in one.state_tensors().items()}
    wrong[name].view(-1)[0] = value
    with pytest.raises(ValueError, match="finite" if value != -1 else "negative"):
        one.load_state(wrong)
    assert state(one) == before


def test_a_shorter_interval_holds_at_once() -> None:
    long, short = estimator(refit_interval=500), estimator(refit_interval=2)
    run(long, made(20), torch.zeros(SLOTS, STEPS))
    short.load_state({name: value.clone() for name, value in long.state_tensors().items()})
    refits = short.snapshot()["refits"].item()
    run(short, made(2, seed=1), torch.zeros(SLOTS, STEPS))
    assert short.snapshot()["refits"].item() == refits + 1


# -- whatever the logits


NUMBERS = st.one_of(
    st.sampled_from([-math.inf, math.inf, math.nan, 1e4, -1e4, 0.0, 3.0, 3e38, -3e38, 1e-40]),
    st.floats(-30, 30, width=32),
)
ROWS = st.one_of(
    st.lists(NUMBERS, min_size=5, max_size=5),
    st.sampled_from([-math.inf, 0.0, 7.0, 1e4, math.nan]).map(lambda x: [x] * 5),  # ties
    st.integers(0, 4).map(lambda k: [0.0 if i == k else -math.inf for i in range(5)]),  # one-hot
)
FUZZED = {  # one of each K, for all examples: what they do to it must not break the next ones
    k: TemperedEstimator(replace(MIXED, refit_interval=1, memory=10.0, damping=0.0), 4, k, CPU)
    for k in (1, 3, 16)
}


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from([1, 3, 16]), st.integers(0, 4), st.booleans())
def test_any_logits(data: st.DataObject, positions: int, count: int, block: bool) -> None:
    """Finite, within [0, 1], and coefficients finite: over one long life of an estimator."""
    one = FUZZED[positions]
    rows = data.draw(st.lists(ROWS, min_size=count * positions, max_size=count * positions))
    slots = data.draw(
        st.lists(
            st.sampled_from([-1, 0, 1, 2, 3]),
            min_size=count,
            max_size=count,
            unique_by=lambda s: s if s >= 0 else object(),
        )
    )
    temperature = data.draw(
        st.lists(st.sampled_from([0.0, 0.01, 0.3, 1.0, 1.4, 2.0, 100.0]), min_size=4, max_size=4)
    )
    numbers = st.lists(st.integers(0, positions + 1), min_size=count, max_size=count)
    step = Step(
        torch.tensor(rows, dtype=torch.float32).reshape(count, positions, 5),
        np.array(slots, np.int32),
        np.array(temperature, np.float32),
        np.array(data.draw(numbers), np.int32),
        np.array(data.draw(numbers), np.int32),
        np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool),
    )
    out = torch.full((4, positions), -1.0)
    predict(one, step, out, block=block)
    real = torch.tensor(slots, dtype=torch.int32) >= 0
    assert (out[:count][~real] == -1.0).all()
    assert ((out[:count][real] >= 0.0) & (out[:count][real] <= 1.0)).all()
    observe(one, step)
    assert np.isfinite(coefficients(one)).all()
    assert all(value.isfinite().all() for value in one.state_tensors().values())
