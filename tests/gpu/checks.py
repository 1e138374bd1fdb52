"""What the estimators' kernels must do on a device, each check by itself.

Rule: torch, Triton and NumPy only; each check takes a device and returns what it found, or raises
AssertionError. Nothing here measures time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.traffic import (
    Step,
    coefficients,
    observe,
    observe_reference,
    predict,
    predict_reference,
    run,
    state,
    traffic,
)
from vllm_av.estimator.formula import features
from vllm_av.estimator.online import OnlineEstimator, score_top_probability
from vllm_av.estimator.reference import ReferenceEstimator
from vllm_av.estimator.settings import MIXED, EstimatorSettings
from vllm_av.estimator.tempered.online import TemperedEstimator
from vllm_av.estimator.tempered.reference import TemperedReference

TOLERANCE = 1e-4
QUICK = replace(MIXED, refit_interval=5, memory=300.0)
POOLED = EstimatorSettings(refit_interval=10)

STREAMS: dict[str, dict[str, Any]] = {
    "K 5, 3,001 tokens, float32": {"positions": 5, "vocab": 3001, "dtype": torch.float32},
    "K 7, 50,257 tokens, bfloat16": {"positions": 7, "vocab": 50_257, "dtype": torch.bfloat16},
    "K 16, 1,000 tokens, float16": {"positions": 16, "vocab": 1000, "dtype": torch.float16},
    "K 1, 2 tokens, float32": {"positions": 1, "vocab": 2, "dtype": torch.float32},
}


def shape(name: str, steps: int, slots: int) -> tuple[Iterator[Step], int]:
    given = STREAMS[name]
    return traffic(steps, slots=slots, odd=True, **given), given["positions"]


def furthest(ours: Any, theirs: Any) -> float:
    gap = float(np.abs(np.asarray(ours, np.float64) - theirs).max(initial=0.0))
    assert gap < TOLERANCE, f"{gap:.1e} apart"
    return gap


def online_estimator(device: torch.device) -> str:
    """Probabilities and coefficients of online_estimator, against NumPy."""
    worst = 0.0
    for name in STREAMS:
        slots = 40
        steps, positions = shape(name, 32, slots)
        ours = TemperedEstimator(QUICK, slots, positions, device)
        reference = TemperedReference(QUICK, slots, positions)
        out, expected = torch.zeros(slots, positions, device=device), np.zeros((slots, positions))
        for number, step in enumerate(steps):
            predict(ours, step, out, block=number % 3 == 2)
            predict_reference(reference, step, expected)
            worst = max(worst, furthest(out.cpu(), expected))
            observe(ours, step, device)
            observe_reference(reference, step)
            worst = max(worst, furthest(coefficients(ours), reference.coefficients))
        assert reference.refits >= 2
        assert ours.snapshot()["masked"].item() == reference.masked
    return f"at most {worst:.1e} apart"


def pooled_estimator(device: torch.device) -> str:
    """The same of pooled_estimator, at temperature 1."""
    worst = 0.0
    for name in STREAMS:
        slots = 24
        given = STREAMS[name]
        positions = given["positions"]
        ours = OnlineEstimator(POOLED, slots, positions, device)
        reference = ReferenceEstimator(POOLED, slots, positions)
        out, expected = torch.zeros(slots, positions, device=device), np.zeros((slots, positions))
        for step in traffic(22, slots=slots, odd=True, temperatures=(1.0,), **given):
            predict(ours, step, out)
            predict_reference(reference, step, expected)
            worst = max(worst, furthest(out.cpu(), expected))
            observe(ours, step, device)
            observe_reference(reference, step)
        found = [ours.slope.item(), *ours.intercepts.tolist()]
        worst = max(worst, furthest(found, [reference.slope, *reference.intercepts]))
        assert reference.refits == 2
    return f"at most {worst:.1e} apart"


def top_probability(device: torch.device) -> str:
    """max_probability, against a softmax in float64."""
    worst = 0.0
    for name in STREAMS:
        steps, positions = shape(name, 2, 24)
        for step in steps:
            out = torch.zeros(24, positions, device=device)
            for k in range(positions):
                score_top_probability(
                    step.logits[:, k].to(device),
                    torch.arange(24, device=device),
                    torch.tensor(k, device=device),
                    torch.from_numpy(step.temperature).to(device),
                    out,
                )
                logits = step.logits[:, k].double().numpy()
                feature = features(logits, step.temperature.astype(np.float64))
                with np.errstate(invalid="ignore"):
                    expected = np.where(np.isnan(feature), 1.0, 1.0 / (1.0 + np.exp(-feature)))
                worst = max(worst, furthest(out[:, k].cpu(), expected))
    return f"at most {worst:.1e} apart"


def same_bits(device: torch.device) -> str:
    """Twice the same, and whatever the order of the requests or what may not teach."""
    name, slots = "K 5, 3,001 tokens, float32", 24
    states = []
    for change in ("none", "again", "shuffled", "without"):
        steps, positions = shape(name, 24, slots)
        estimator = TemperedEstimator(QUICK, slots, positions, device)
        order = np.random.default_rng(1)
        for step in steps:
            if change == "shuffled":
                step = step.part(order.permutation(slots))
            if change == "without" and step.mask is not None:
                step = replace(step.part(step.mask), mask=None)
            run(estimator, [step], torch.zeros(slots, positions, device=device))
        states.append(state(estimator))
    masked = [each.pop("masked") for each in states]
    assert states[1:] == states[:1] * 3
    assert masked[0] == masked[1] == masked[2] != masked[3]
    return f"{sum(map(len, states[0].values()))} bytes, four times"


@contextmanager
def no_waiting(device: torch.device) -> Iterator[None]:
    """An error for whatever waits for the device."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def nothing_waits(device: torch.device) -> str:
    """Predict, observe and a refit, with torch's check for synchronisation on (CUDA only)."""
    slots, positions = 24, 5
    steps = list(traffic(4, slots=slots, positions=positions, vocab=3001))
    for made in (
        TemperedEstimator(replace(QUICK, refit_interval=1), slots, positions, device),
        OnlineEstimator(replace(POOLED, refit_interval=1), slots, positions, device),
    ):
        run(made, steps, torch.zeros(slots, positions, device=device))  # compiles
        out = torch.zeros(slots, positions, device=device)
        for step in steps:
            names = ("mapping", "temperature", "sampled", "rejected")
            arrays = [torch.from_numpy(getattr(step, name)).to(device) for name in names]
            mask = None if step.mask is None else torch.from_numpy(step.mask).to(device)
            logits = step.logits.to(device)
            numbers = torch.arange(positions, device=device)
            with no_waiting(device):
                for k in range(positions):
                    made.predict(logits[:, k], arrays[0], numbers[k], arrays[1], out)
                made.observe(arrays[0], arrays[2], arrays[3], mask)
                made.snapshot()
    return "checked" if device.type == "cuda" else "not checked: needs CUDA"


def _captured(
    estimator: Any, inputs: dict[str, torch.Tensor], out: torch.Tensor
) -> Callable[[], None]:
    """A replay of a whole draft: one call of predict per position, on static inputs."""
    numbers = torch.arange(out.shape[1], device=out.device)

    def draft() -> None:
        for k in range(out.shape[1]):
            logits = inputs["logits"][:, k]
            estimator.predict(logits, inputs["mapping"], numbers[k], inputs["temperature"], out)

    if out.device.type != "cuda":
        return draft
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        draft()  # compiles
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        draft()
    return graph.replay


def graph(device: torch.device) -> str:
    """predict in a CUDA graph, replayed with other inputs and between refits, against eager."""
    replays = 0
    for kind, settings in ((TemperedEstimator, QUICK), (OnlineEstimator, POOLED)):
        for name in STREAMS:
            slots = 24
            steps, positions = shape(name, 32, slots)
            eager, captured = (kind(settings, slots, positions, device) for _ in range(2))
            outs = torch.zeros(2, slots, positions, device=device)
            replay, inputs = None, {}
            for step in steps:
                given = {
                    "logits": step.logits.to(device),
                    "mapping": torch.from_numpy(step.mapping).to(device),
                    "temperature": torch.from_numpy(step.temperature).to(device),
                }
                if replay is None:
                    inputs = {key: value.clone() for key, value in given.items()}
                    replay = _captured(captured, inputs, outs[1])
                for key, value in given.items():
                    inputs[key].copy_(value)
                replay()
                predict(eager, step, outs[0])
                assert torch.equal(outs[0], outs[1]), f"{kind.__name__}, {name}"
                for each in (eager, captured):
                    observe(each, step, device)
                replays += 1
            assert state(eager) == state(captured)
    return f"{replays} replays" if device.type == "cuda" else f"{replays} steps, without a graph"


def restart(device: torch.device) -> str:
    """What follows a restart, against the same without a stop."""
    slots, positions = 24, 5
    steps = list(traffic(30, slots=slots, positions=positions, vocab=300, odd=True))
    for kind, settings in ((TemperedEstimator, QUICK), (OnlineEstimator, POOLED)):
        whole, first, second = (kind(settings, slots, positions, device) for _ in range(3))
        out = torch.zeros(slots, positions, device=device)
        run(first, steps[:13], out)
        saved = {name: value.cpu().clone() for name, value in first.state_tensors().items()}
        second.load_state(saved)
        run(second, steps[13:], out)
        run(whole, steps, out)
        assert state(second) == state(whole)
    return "the same bits"


CHECKS: tuple[Callable[[torch.device], str], ...] = (
    online_estimator,
    pooled_estimator,
    top_probability,
    same_bits,
    nothing_waits,
    graph,
    restart,
)
