"""The acceptance rate of each draft position so far: what a scorer without a feature knows."""

from typing import Any

import numpy as np

from vllm_av.replay.replay import Bools, Floats, Rows


class ConstantPerPosition:
    """(accepted + 1/2) / (labels + 1), per position."""

    columns: tuple[str, ...] = ()

    def __init__(self, num_positions: int) -> None:
        self._labels, self._accepted = np.zeros((2, num_positions))

    def steps_to_refit(self) -> int:
        return 1

    def _rates(self) -> Floats:
        return (self._accepted + 0.5) / (self._labels + 1.0)

    def predict(self, rows: Rows) -> Floats:
        return np.asarray(self._rates()[rows["position"]])

    def learn(self, rows: Rows, labelled: Bools, steps: int) -> None:
        position, count = rows["position"][labelled], len(self._labels)
        self._labels += np.bincount(position, minlength=count)
        self._accepted += np.bincount(position, rows["accepted"][labelled], count)

    def state(self) -> dict[str, Any]:
        return {"rates": self._rates().tolist()}
