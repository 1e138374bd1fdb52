"""Names the scorer that failed.

Rule: a scorer that raises stops the engine, by an error that says which scorer it was, in which
method, and what it raised; it never goes on with half a prediction.
"""

from collections.abc import Callable
from typing import Any

from vllm_av.errors import Code, ScorerError, told
from vllm_av.scorers.traits import Traits


def guarded(name: str, method: str, call: Callable[..., Any], *args: Any) -> Any:
    """``call(*args)``.

    Raises:
        ScorerError: ``AV-SCORER-FAILED``, caused by what ``call`` raised.
    """
    try:
        return call(*args)
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and _from_vllm(error):
            raise
        raise ScorerError(
            Code.SCORER_FAILED,
            given=f"the scorer {name!r} raised {type(error).__name__} in {method}: {told(error)}",
            allowed="a scorer that does not raise",
            fix="mend it (the traceback is the cause of this error), or choose another scorer",
        ) from error


def _from_vllm(error: SystemExit) -> bool:
    """Whether a signal's handler of vLLM's raised it, which may interrupt a scorer anywhere."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__") if trace is not None else None
    return str(module).partition(".")[0] == "vllm"


class GuardedScorer:
    """A scorer as vLLM is given it: the attributes and methods of vLLM's ``AcceptanceScorer``.

    Attributes:
        name: the scorer's.
        traits: what it said about itself.
        scorer: the scorer itself.
        on_failure: is told the error before it is raised.
        on_observed: is called after each observation.
    """

    def __init__(self, name: str, scorer: Any, traits: Traits) -> None:
        self.name = name
        self.scorer = scorer
        self.traits = traits
        self.on_failure: Callable[[ScorerError], object] = lambda error: None
        self.on_observed: Callable[[], object] = lambda: None
        self.needs_draft_logits = traits.needs_draft_logits
        self.needs_confidence_head = traits.needs_confidence_head
        self.needs_drawn_tokens = traits.needs_drawn_tokens

    def add_request(self, req_idx: int) -> None:
        # A scorer of another package need not have it.
        if hasattr(self.scorer, "add_request"):
            self._call("add_request", req_idx)

    def predict(
        self,
        logits: Any,
        idx_mapping: Any,
        draft_step: Any,
        temperature: Any,
        out: Any,
        drawn_tokens: Any = None,
    ) -> None:
        # Who did not ask for the drawn tokens is not handed them, whatever vLLM passes.
        drawn = (drawn_tokens,) if self.needs_drawn_tokens else ()
        arguments = (logits, idx_mapping, draft_step, temperature, out, *drawn)
        self._call("predict", *arguments)

    def predict_block(self, hidden_states: Any, markov_embeds: Any, out: Any) -> None:
        self._call("predict_block", hidden_states, markov_embeds, out)

    def observe(
        self, idx_mapping: Any, num_sampled: Any, num_rejected: Any, target_only: Any = None
    ) -> None:
        # int32 [num_reqs], see vllm_av.scorers.target_only; a scorer is told who may teach.
        mask = None if target_only is None else target_only == 0
        self._call("observe", idx_mapping, num_sampled, num_rejected, mask)
        self.on_observed()

    def warm_up(
        self, idx_mapping: Any, num_sampled: Any, num_rejected: Any, target_only: Any = None
    ) -> None:
        # Nor this.
        if hasattr(self.scorer, "warm_up"):
            self._call("warm_up", idx_mapping, num_sampled, num_rejected)

    def snapshot(self) -> Any:
        return self._call("snapshot")

    def _call(self, method: str, *arguments: Any) -> Any:
        def call() -> Any:
            return getattr(self.scorer, method)(*arguments)

        try:
            return guarded(self.name, method, call)
        except ScorerError as error:
            self.on_failure(error)
            raise
