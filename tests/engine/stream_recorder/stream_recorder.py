"""Writes down what an online estimator is told inside an engine, and what it has learnt from it.

As a plugin of vLLM's it does so in whichever process has the estimator, into the file that the
environment names; after each refit the calls since the last one and the state are appended.
"""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

FILE = "STREAM_RECORDER_FILE"

Call = tuple[str, tuple[Any, ...]]
"""``predict`` or ``observe``, and its arguments as NumPy arrays, ``out`` as it was afterwards."""


class Round(NamedTuple):
    """The calls of a round, and the state after it by name."""

    calls: list[Call]
    state: dict[str, Any]


def register() -> None:
    """Called by vLLM in every process."""
    if FILE not in os.environ:
        return
    from vllm_av.scorers.online_estimator import OnlineEstimatorScorer

    init = OnlineEstimatorScorer.__init__
    if getattr(init, "records", False):
        return

    def recording(self: Any, context: Any) -> None:
        init(self, context)
        record(self.estimator, _append)

    recording.records = True  # type: ignore[attr-defined]
    OnlineEstimatorScorer.__init__ = recording  # type: ignore[method-assign]


def _append(round_: Round) -> None:
    with Path(os.environ[FILE]).open("ab") as file:
        pickle.dump(tuple(round_), file)


def read(path: Path) -> list[Round]:
    """The rounds that are in a file."""
    rounds = []
    with path.open("rb") as file:
        while file.peek():
            rounds.append(Round(*pickle.load(file)))
    return rounds


def record(estimator: Any, done: Callable[[Round], None]) -> None:
    """Let ``done`` have each round of an ``OnlineEstimator`` from now on.

    ``del`` its attributes ``predict`` and ``observe`` to end it.
    """
    calls: list[Call] = []
    predict, observe = estimator.predict, estimator.observe

    def see_predict(*arguments: Any) -> None:
        predict(*arguments)
        calls.append(("predict", _arrays(arguments)))

    def see_observe(*arguments: Any) -> None:
        calls.append(("observe", _arrays(arguments)))
        refits = estimator.refits
        observe(*arguments)
        if estimator.refits > refits:
            state = {name: value.cpu().numpy() for name, value in estimator.snapshot().items()}
            done(Round(list(calls), state))
            calls.clear()

    estimator.predict, estimator.observe = see_predict, see_observe


def _arrays(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        None if value is None else value.detach().cpu().numpy().copy() for value in arguments
    )
