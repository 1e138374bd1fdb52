"""The figures of one run, as an arm reports them and the table shows them.

Rule: raw counts travel; every mean and ratio is derived from them here, once.
"""

from pydantic import BaseModel, ConfigDict


class _Figures(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Position(_Figures):
    """What was observed at one draft position: the accepted drafts and the first rejected one.

    Only a verified draft is observed, and only if all drafts before it were accepted.
    """

    labels: int = 0
    accepted: int = 0
    predicted: float = 0.0
    """Sum of the predictions made for these drafts."""
    predictions: int = 0
    """How many of these drafts had a prediction: all, or none where nothing predicts."""

    @property
    def observed_mean(self) -> float | None:
        """Share of the observed drafts that were accepted."""
        return self.accepted / self.labels if self.labels else None

    @property
    def predicted_mean(self) -> float | None:
        """Mean prediction for the same drafts; None where nothing predicted."""
        return self.predicted / self.predictions if self.predictions else None


class Drafts(_Figures):
    """What became of the drafts."""

    scheduled: int = 0
    verified: int = 0
    accepted: int = 0
    positions: list[Position] = []


class Load(_Figures):
    """One measurement: some requests at one concurrency."""

    concurrency: int
    requests: int
    seconds: float
    cpu_seconds: float
    """Of all threads of the process; far less than ``seconds`` where others took the core."""
    tokens: int
    """Generated, over all requests."""
    steps: int
    """Of the engine."""
    request_steps: int
    """Engine steps in which a request got tokens, summed over the requests."""
    drafts: Drafts
    priced_ms: tuple[float, float] | None = None
    """What vLLM's cost profile says of a step that verifies no draft, and of one that verifies all
    of every request; None where nothing is priced."""
    outputs: list[list[int]]
    """Token ids per request, in the order of the prompts."""

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over wall-clock time, prefill included."""
        return self.tokens / self.seconds

    @property
    def tokens_per_cpu_second(self) -> float:
        """Generated tokens over the time that this process computed."""
        return self.tokens / self.cpu_seconds

    @property
    def seconds_per_step(self) -> float:
        """Mean time of an engine step, those that prefill included."""
        return self.seconds / self.steps

    @property
    def cpu_seconds_per_step(self) -> float:
        """Mean time that the process computed in an engine step."""
        return self.cpu_seconds / self.steps

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens a request gets from one decode step; the first token comes from its prefill."""
        steps = self.request_steps - self.requests
        return (self.tokens - self.requests) / steps if steps > 0 else None


class Coefficients(_Figures):
    """The online acceptance estimator at the temperature of the requests."""

    slopes: dict[str, float]
    """By feature of the draft's distribution."""
    intercepts: list[float]
    """By draft position."""
    refits: int
    refit_interval: int
    """Decode steps from refit to refit, in the long run."""
    decode_steps: int
    """That it has learnt from since the engine started, those of the warm-up included."""


class ScorerInForce(_Figures):
    """Which scorer predicts, and why it is that one."""

    name: str
    reason: str


class ArmResult(_Figures):
    """All that one arm reports."""

    start_seconds: float
    """From the start of its process to the first measurement."""
    loads: list[Load]
    coefficients: Coefficients | None
    """At the end of the run; ``None`` where nothing estimates."""
    scorer: ScorerInForce | None = None
    """``None`` where nothing predicts."""
