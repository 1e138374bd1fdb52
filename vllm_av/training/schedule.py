"""What depends on the number of a training step: the learning rate and the length of the rollout.

Rule: a step count, never a time, decides.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Of one training run.

    Args:
        steps: of the optimiser, in all.
        peak: learning rate after the warm-up.
        warm_up: steps over which it rises to ``peak``; it falls as a cosine from there.
        floor: the last learning rate, as a part of ``peak``.
        rollout: draft steps that are trained, in equal shares of the run.
    """

    steps: int
    peak: float
    warm_up: int = 20
    floor: float = 0.02
    rollout: tuple[int, ...] = (1,)

    def learning_rate(self, step: int) -> float:
        """Of step ``step``, counted from 0."""
        rise = min(1.0, (step + 1) / self.warm_up)
        fall = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.peak * rise * (self.floor + (1 - self.floor) * fall)

    def draft_steps(self, step: int) -> int:
        """How many draft steps are trained at ``step``."""
        return self.rollout[step * len(self.rollout) // self.steps]
