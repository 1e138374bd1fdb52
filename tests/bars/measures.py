"""How near a learner is to the offline optimum on a trace, and how calibrated.

single, mixed   log-loss from step 200 on, against the offline optimum: of the best lossless
                single feature at each temperature (the one that is best where it is scored)
calibration     ECE, equal mass, of the survival product
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vllm_av.replay import optimum, trace
from vllm_av.replay.metrics import figures, log_loss
from vllm_av.replay.options import chosen
from vllm_av.replay.replay import Learner, replay
from vllm_av.replay.scoring import Halves, Regimes, halves, regimes
from vllm_av.replay.stream import Stream, lay_out

Build = Callable[[Sequence[str], trace.Trace], Learner]
"""From settings, as ``--set`` takes them, for a trace."""


def scorer(name: str) -> Build:
    return partial(chosen, name)


@dataclass(frozen=True)
class Gap:
    """A log-loss beside the one that it is held to, nats."""

    labels: int
    loss: float
    optimum: float
    by: str

    @property
    def share(self) -> float:
        return self.loss / self.optimum - 1.0


def features_of(found: trace.Trace) -> list[str]:
    return list(optimum.features_in(found))


def mixed(
    found: trace.Trace,
    build: Build,
    temperatures: Sequence[float] | None = None,
    batch: int | None = None,
) -> dict[str, Gap]:
    """Gap per temperature, and ``all``, of one replay of the trace as it is, or of some requests.

    ``all`` is held to the sum of the temperatures' optima.
    """
    stream = laid_out(found, build, temperatures, batch)
    cut, kinds = halves(stream), regimes(stream["temperature"])
    learner = build((), found)
    predictions = replay(stream, learner)
    best = best_of_each(stream, kinds, cut, features_of(found))
    gaps = {}
    for number, name in enumerate(kinds.names):
        rows = cut.scored & (kinds.of == number)
        if rows.any():
            own = log_loss(predictions[rows], stream["accepted"][rows])
            theirs, by = best[number]
            gaps[name] = Gap(int(rows.sum()), own, theirs, by)
    total = sum(gap.labels for gap in gaps.values())
    gaps["all"] = Gap(
        total,
        sum(gap.labels * gap.loss for gap in gaps.values()) / total,
        sum(gap.labels * gap.optimum for gap in gaps.values()) / total,
        "each temperature's",
    )
    return gaps


def single(found: trace.Trace, build: Build, batch: int | None = None) -> dict[str, Gap]:
    """Gap of a replay of each temperature's requests alone."""
    gaps = {}
    for kind in np.unique(found["temperature"]):
        for name, gap in mixed(found, build, [float(kind)], batch).items():
            if name != "all":
                gaps[name] = gap
    return gaps


def best_of_each(
    stream: Stream, kinds: Regimes, cut: Halves, features: Sequence[str]
) -> list[tuple[float, str]]:
    """Per regime the lowest log-loss of a single feature on the scored rows, and which."""
    label, position = stream["accepted"], stream["position"]
    found = []
    for number in range(len(kinds.names)):
        own = kinds.of == number
        fitted, scored = cut.fitted & own, cut.scored & own
        if not fitted.any() or not scored.any():
            found.append((np.nan, "none"))
            continue
        losses = []
        for name in features:
            x = optimum.feature(stream, name)
            law = optimum.fit(x[fitted], position[fitted], label[fitted], stream.num_positions)
            loss = log_loss(law.predict(x[scored], position[scored]), label[scored])
            losses.append((loss, name))
        found.append(min(losses))
    return found


def optimum_of(stream: Stream, cut: Halves, features: Sequence[str]) -> float:
    """Log-loss of the scored rows by the best single feature at each temperature."""
    kinds = regimes(stream["temperature"])
    best = best_of_each(stream, kinds, cut, features)
    rows = np.bincount(kinds.of[cut.scored], minlength=len(best))
    return float(sum(n * loss for n, (loss, _) in zip(rows, best, strict=True) if n) / rows.sum())


def calibration(
    found: trace.Trace, build: Build, batch: int | None = None
) -> dict[str, dict[str, Any]]:
    """Figures of the survival product, ``all`` and of each position.

    They are of the scored half. ``trace_labels`` beside them is what the whole trace has.
    """
    stream = laid_out(found, build, None, batch)
    cut = halves(stream)
    predictions = replay(stream, build((), found))
    survival = stream.running(np.where(stream.usable, predictions, 0.0))
    rows = stream["verified"] & stream.usable & (stream.step >= cut.begins)
    labels = stream.labelled & stream.usable
    positions = {"all": np.ones(stream.rows, bool)}
    positions |= {str(k): stream["position"] == k for k in range(stream.num_positions)}
    return {
        name: figures(
            survival[rows & own], stream["accepted"][rows & own], stream.group[rows & own]
        ).as_dict()
        | {"trace_labels": int((labels & own).sum())}
        for name, own in positions.items()
    }


def columns(build: Build, found: trace.Trace) -> tuple[str, ...]:
    return tuple(build((), found).columns)


def laid_out(
    found: trace.Trace, build: Build, temperatures: Sequence[float] | None, batch: int | None
) -> Stream:
    wanted = ("request", *columns(build, found), *features_of(found))
    return lay_out(found, wanted, batch=batch, temperatures=temperatures)
