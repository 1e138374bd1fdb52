"""Names the scorer that failed.

Rule: a scorer that raises stops the engine, by an error that says which scorer it was, in which
method, and what it raised; it never goes on with half a prediction.
"""

from collections.abc import Callable
from typing import Any

from vllm_av.errors import Code, ScorerError
from vllm_av.scorers.traits import Traits


def guarded(name: str, method: str, call: Callable[..., Any], *args: Any) -> Any:
    """``call(*args)``.

    Raises:
        ScorerError: ``AV-SCORER-FAILED``, caused by what ``call`` raised.
    """
    try:
        return call(*args)
    except Exception as error:
        raise ScorerError(
            Code.SCORER_FAILED,
            given=f"the scorer {name!r} raised {type(error).__name__} in {method}: {error}",
            allowed="a scorer that does not raise",
            fix="mend it (the traceback is the cause of this error), or choose another scorer",
        ) from error


class GuardedScorer:
    """A scorer as vLLM is given it: the attributes and methods of vLLM's ``AcceptanceScorer``.

    Attributes:
        name: the scorer's.
        traits: what it said about itself.
        scorer: the scorer itself.
    """

    def __init__(self, name: str, scorer: Any, traits: Traits) -> None:
        self.name = name
        self.scorer = scorer
        self.traits = traits
        self.needs_draft_logits = traits.needs_draft_logits
        self.needs_confidence_head = traits.needs_confidence_head
        self.needs_drawn_tokens = traits.needs_drawn_tokens

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
        guarded(self.name, "predict", self.scorer.predict, *arguments)

    def predict_block(self, hidden_states: Any, markov_embeds: Any, out: Any) -> None:
        arguments = (hidden_states, markov_embeds, out)
        guarded(self.name, "predict_block", self.scorer.predict_block, *arguments)

    def observe(
        self, idx_mapping: Any, num_sampled: Any, num_rejected: Any, mask: Any = None
    ) -> None:
        arguments = (idx_mapping, num_sampled, num_rejected, mask)
        guarded(self.name, "observe", self.scorer.observe, *arguments)

    def snapshot(self) -> Any:
        return guarded(self.name, "snapshot", self.scorer.snapshot)
