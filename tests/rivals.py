"""Online learners side by side on one trace: upstream, river, Platt, constants, and ours.

Each rival that has settings of its own is run with several, and the one that is best on the very
rows that are scored is taken: what nobody who serves can do, so it is in their favour.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.bars.measures import features_of, scorer
from vllm_av.replay import trace
from vllm_av.replay.baselines.constant import ConstantPerPosition
from vllm_av.replay.baselines.platt import PlattWithCalibeating
from vllm_av.replay.baselines.river_logistic import RiverLogistic
from vllm_av.replay.metrics import log_loss
from vllm_av.replay.replay import Learner, replay
from vllm_av.replay.scoring import halves, regimes
from vllm_av.replay.stream import lay_out
from vllm_av.replay.tables import tables

OURS = "online_estimator"
RATES = (0.003, 0.01, 0.03, 0.1)
"""river's learning rates."""
GAMMAS = (0.1, 0.5, 1.0)
"""Of online Platt scaling: the paper's and two larger ones."""


@dataclass(frozen=True)
class Rival:
    """One learner on one trace.

    Attributes:
        settings: those that were best.
        losses: conditional log-loss on the scored half, by temperature and ``all``.
        seconds: of one replay.
    """

    settings: str
    losses: dict[str, float]
    seconds: float


def candidates(found: trace.Trace) -> dict[str, dict[str, Callable[[], Learner]]]:
    """Name -> settings in words -> a fresh learner."""
    k = found.info.num_speculative_tokens
    features = [("log_odds",)]
    if found.has("margin"):
        features.append(("log_odds", "margin"))
    return {
        OURS: {"": lambda: scorer(OURS)((), found)},
        "pooled_estimator": {"": lambda: scorer("pooled_estimator")((), found)},
        "upstream": {"": lambda: scorer("upstream")((), found)},
        "river": {
            f"rate {rate:g}, {' and '.join(names)}": lambda rate=rate, names=names: RiverLogistic(
                k, rate, names
            )
            for rate in RATES
            for names in features
        },
        "Platt, calibeating": {
            f"gamma {gamma:g}": lambda gamma=gamma: PlattWithCalibeating(k, gamma)
            for gamma in GAMMAS
        },
        "Platt, online": {
            f"gamma {gamma:g}": lambda gamma=gamma: PlattWithCalibeating(
                k, gamma, calibeating=False
            )
            for gamma in GAMMAS
        },
        "constant": {"": lambda: ConstantPerPosition(k)},
    }


def side_by_side(found: trace.Trace) -> tuple[dict[str, Rival], dict[str, float]]:
    """Every learner, and the offline optimum by temperature, on the same rows."""
    features = features_of(found)
    stream = lay_out(found, ("log_odds_scaled", *features))
    cut, kinds = halves(stream), regimes(stream["temperature"])
    rows = {name: cut.scored & (kinds.of == number) for number, name in enumerate(kinds.names)}
    rows = {name: of for name, of in rows.items() if of.any()} | {"all": cut.scored}
    rivals = {}
    for name, builds in candidates(found).items():
        tried = []
        for settings, build in builds.items():
            learner = build()
            start = time.perf_counter()
            predictions = replay(stream, learner)
            seconds = time.perf_counter() - start
            losses = {
                kind: log_loss(predictions[of], stream["accepted"][of]) for kind, of in rows.items()
            }
            tried.append(Rival(settings, losses, seconds))
        rivals[name] = min(tried, key=lambda rival: rival.losses["all"])
    answer = tables(stream, np.full(stream.rows, 0.5), cut, kinds, features)
    optimum = {part.name: part.optimum.log_loss for part in answer.regimes if part.name in rows}
    return rivals, optimum | {"all": answer.overall.optimum.log_loss}


def best_of_others(rivals: dict[str, Rival]) -> tuple[str, float]:
    """The best of those that are not ours."""
    others = {name: rival.losses["all"] for name, rival in rivals.items() if name != OURS}
    name = min(others, key=others.__getitem__)
    return name, others[name]


def lines(rivals: dict[str, Rival], optimum: dict[str, float]) -> list[str]:
    """A table, best first."""
    kinds = list(optimum)
    found = [f"{'':<19}" + "".join(f"{kind:>8}" for kind in kinds) + f"{'seconds':>9}"]
    for name, rival in sorted(rivals.items(), key=lambda each: each[1].losses["all"]):
        losses = "".join(f"{rival.losses[kind]:>8.4f}" for kind in kinds)
        found.append(f"{name:<19}{losses}{rival.seconds:>9.2f}  {rival.settings}")
    offline = "".join(f"{optimum[kind]:>8.4f}" for kind in kinds)
    found.append(f"{'offline optimum':<19}{offline}{'':>9}  best feature at each temperature")
    return found
