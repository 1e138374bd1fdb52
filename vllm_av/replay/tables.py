"""A replay's figures: per temperature regime, per position, overall, and beside the optimum.

    conditional   p of a draft, given that all before it was accepted; of the labelled rows
    survival      the product of p over a draft and those before it, what the draft budget goes by;
                  its outcome is whether all of them were accepted. Of the verified rows: an outcome
                  is known beyond them too, where an earlier draft was rejected, but only if it is a
                  failure, so that those rows would say too little was accepted
    optimum       see :mod:`optimum`: of every single feature that the trace has. A learner is held
                  to the one that is best on the scored rows, regime by regime

Rule: every figure is of the rows that :mod:`scoring` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vllm_av.replay.metrics import Bools, Figures, Floats, figures, losses
from vllm_av.replay.optimum import Fit, feature, fit
from vllm_av.replay.scoring import Halves, Regimes
from vllm_av.replay.stream import Stream


@dataclass(frozen=True)
class Optimum:
    """What the offline fits reach on a part's conditional rows, nats.

    Attributes:
        best: the feature that is best there, or ``each regime's`` where they differ.
        log_loss: of each regime's best feature.
        gap: the learner's log-loss over it, less 1; both of the rows whose regime has a fit.
        features: by feature, each regime fitted by itself.
        pooled: by feature, one fit for all regimes.
    """

    best: str
    log_loss: float
    gap: float
    features: dict[str, float]
    pooled: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``: NaN, which JSON has not, is null."""
        return {
            "best": self.best,
            "log_loss": _number(self.log_loss),
            "gap": _number(self.gap),
            "features": {name: _number(loss) for name, loss in self.features.items()},
            "pooled": {name: _number(loss) for name, loss in self.pooled.items()},
        }


def _number(value: float) -> float | None:
    return None if value != value else value


@dataclass(frozen=True)
class Part:
    """Figures of one set of rows.

    Attributes:
        name: a temperature, a range of them, a position, or ``all``.
    """

    name: str
    conditional: Figures
    survival: Figures
    optimum: Optimum

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "name": self.name,
            "conditional": self.conditional.as_dict(),
            "survival": self.survival.as_dict(),
            "optimum": self.optimum.as_dict(),
        }


@dataclass(frozen=True)
class Tables:
    """All parts, and the fits that the optima are of.

    Attributes:
        fits: feature -> one fit per regime.
        pooled_fits: feature -> one fit for all of them.
    """

    overall: Part
    regimes: tuple[Part, ...]
    positions: tuple[Part, ...]
    fits: dict[str, Sequence[Fit | None]]
    pooled_fits: dict[str, Fit]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        names = [part.name for part in self.regimes]
        return {
            "overall": self.overall.as_dict(),
            "regimes": [part.as_dict() for part in self.regimes],
            "positions": [part.as_dict() for part in self.positions],
            "fits": {
                each: {
                    "pooled": self.pooled_fits[each].as_dict(),
                    "regimes": {
                        name: found.as_dict()
                        for name, found in zip(names, fits, strict=True)
                        if found is not None
                    },
                }
                for each, fits in self.fits.items()
            },
        }


def tables(
    stream: Stream, predictions: Floats, cut: Halves, kinds: Regimes, features: Sequence[str]
) -> Tables:
    """Every figure of one replay.

    Args:
        stream: what was replayed.
        predictions: [n], of the learner.
        cut: which rows are fitted on and scored.
        kinds: the regimes.
        features: of the offline fits.
    """
    survival = stream.running(np.where(stream.usable, predictions, 0.0))
    told = stream.usable & np.isfinite(survival)
    scored = cut.scored & told
    reached = stream["verified"] & told & (stream.step >= cut.begins)
    optima = _Optima(stream, cut.fitted, scored, kinds, features)
    own_losses = losses(np.where(scored, predictions, 0.5), stream["accepted"])

    def part(name: str, rows: Bools) -> Part:
        own, seen = scored & rows, reached & rows
        return Part(
            name,
            figures(predictions[own], stream["accepted"][own]),
            figures(survival[seen], stream["accepted"][seen], stream.group[seen]),
            optima.of(own, own_losses),
        )

    return Tables(
        overall=part("all", np.ones(stream.rows, bool)),
        regimes=tuple(part(name, kinds.of == i) for i, name in enumerate(kinds.names)),
        positions=tuple(part(str(k), stream["position"] == k) for k in range(stream.num_positions)),
        fits=optima.fits,
        pooled_fits=optima.pooled_fits,
    )


class _Optima:
    """Offline fits of every feature, and each scored row's loss under them."""

    def __init__(
        self,
        stream: Stream,
        fitted: Bools,
        scored: Bools,
        kinds: Regimes,
        features: Sequence[str],
    ) -> None:
        label, position, k = stream["accepted"], stream["position"], stream.num_positions
        sides = [(fitted, scored)]
        for number in range(len(kinds.names)):
            own = kinds.of == number
            sides.append((fitted & own, scored & own))
        places = [(np.flatnonzero(rows), np.flatnonzero(others)) for rows, others in sides]
        self.fits: dict[str, Sequence[Fit | None]] = {}
        self.pooled_fits: dict[str, Fit] = {}
        self._apart: dict[str, Floats] = {}
        self._pooled: dict[str, Floats] = {}
        for name in features:
            x = feature(stream, name)
            found: list[Fit | None] = []
            reached: list[Floats] = []
            for rows, others in places:
                law = fit(x[rows], position[rows], label[rows], k) if len(rows) else None
                found.append(law)
                reached.append(
                    losses(law.predict(x[others], position[others]), label[others])
                    if law is not None
                    else np.full(len(others), np.nan)
                )
            assert found[0] is not None  # halves() leaves labels on both sides
            self.pooled_fits[name], self.fits[name] = found[0], found[1:]
            self._pooled[name], self._apart[name] = np.full((2, stream.rows), np.nan)
            self._pooled[name][places[0][1]] = reached[0]
            for (_, others), values in zip(places[1:], reached[1:], strict=True):
                self._apart[name][others] = values
        self._best = np.full(stream.rows, np.nan)
        self._which = np.full(stream.rows, -1)
        for _, others in places[1:]:
            means = (
                [float(values[others].mean()) for values in self._apart.values()]
                if len(others)
                else []
            )
            if means and not np.isnan(means).all():
                best = int(np.nanargmin(means))
                self._best[others], self._which[others] = self._apart[features[best]][others], best
        self._features = features

    def of(self, rows: Bools, own: Floats) -> Optimum:
        """Of some scored rows, beside the losses ``own`` of the learner, [n]."""
        held = rows & np.isfinite(self._best)
        least, theirs = _mean(self._best, held), _mean(own, held)
        kinds = np.unique(self._which[held])
        names = {0: "none", 1: self._features[kinds[0]] if len(kinds) else "none"}
        return Optimum(
            best=names.get(len(kinds), "each regime's"),
            log_loss=least,
            gap=theirs / least - 1.0,
            features={name: _mean(values, rows) for name, values in self._apart.items()},
            pooled={name: _mean(values, rows) for name, values in self._pooled.items()},
        )


def _mean(values: Floats, rows: Bools) -> float:
    return float(values[rows].mean()) if rows.any() else float("nan")
