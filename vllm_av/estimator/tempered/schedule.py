"""When the estimator for mixed traffic is refitted: soon at first, then at a steady interval.

Rule: counted on the host, in decode steps, so that nothing waits for the device and every rank
refits in the same step.
"""


class Schedule:
    """Refits after steps 1, 2, 4, 8 ..., until doubling would take longer than the interval.

    Args:
        interval: decode steps from refit to refit in the long run.
        steps: decode steps so far.

    Attributes:
        steps: decode steps so far.
        left: decode steps to the next refit, at least 1.
    """

    def __init__(self, interval: int, steps: int = 0) -> None:
        self._interval = interval
        self.steps = steps
        self.left = self._gap()

    def _gap(self) -> int:
        return max(1, min(self.steps, self._interval))

    def resume(self, steps: int, left: int) -> None:
        """Go on where another schedule was; its interval may have been longer."""
        self.steps = steps
        self.left = max(1, min(left, self._gap()))

    def count(self, steps: int = 1) -> bool:
        """Let ``steps`` pass, at most :attr:`left`; whether a refit is due."""
        self.steps += steps
        self.left -= steps
        if self.left > 0:
            return False
        self.left = self._gap()
        return True
