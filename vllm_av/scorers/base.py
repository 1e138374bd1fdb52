"""What a scorer is: it predicts, for each draft token, the probability that it will be accepted.

Rules a scorer keeps, which no program can check for it:

* The prediction for position ``i`` depends neither on the token drawn at ``i`` nor on a later one
  (it is *prefix-measurable*), else the output no longer follows the target's distribution.
* Every tensor-parallel rank computes the same numbers, but for rounding: those of the first count.
* ``out`` and the scorer's own tensors are written in place and without waiting for the device: the
  calls are recorded in CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch

    from vllm_av.config import AdaptiveVerificationConfig
    from vllm_av.drafters import Start


@dataclass(frozen=True)
class ScorerContext:
    """What a scorer is built from.

    Args:
        num_speculative_steps: drafts per request and step, K.
        max_num_reqs: request slots; ``idx_mapping`` holds numbers below it.
        device: where all tensors are.
        has_draft_logits: whether the drafter makes logits, without which ``predict`` is not called.
        confidence_head: the checkpoint's own head, ``(hidden_states, markov_embeds) -> [num_reqs *
            K]`` probabilities, or None where the checkpoint has none.
        config: the whole ``adaptive_verification_config``.
        start: where an estimator may start, by the drafter's type; None where that is not known.
    """

    num_speculative_steps: int
    max_num_reqs: int
    device: torch.device
    has_draft_logits: bool
    confidence_head: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None
    config: AdaptiveVerificationConfig
    start: Start | None = None


class Scorer:
    """Base of the scorers here; one from elsewhere may inherit from it and need not.

    The first line of a scorer's docstring is what ``vllm-av scorers`` prints.
    """

    needs_draft_logits: ClassVar[bool] = False
    """``predict`` is called after each draft step."""
    needs_confidence_head: ClassVar[bool] = False
    """``predict_block`` is called once per block; the checkpoint must have the head."""
    needs_drawn_tokens: ClassVar[bool] = False
    """``predict`` is given the drawn tokens. Such a scorer is lossy, whatever it does with them."""
    prefix_measurable: ClassVar[bool] = True
    """Whether the first rule above is kept."""

    def __init__(self, context: ScorerContext) -> None:
        """Called once, after the drafter's weights were loaded."""

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
        drawn_tokens: torch.Tensor | None = None,
    ) -> None:
        """Write ``out[row, step]`` for each token that was just drawn.

        Args:
            logits: float ``[num_tokens, vocabulary]``, before temperature.
            idx_mapping: int ``[num_tokens]``, the request's slot; -1 marks padding, to be skipped.
            draft_step: int, 0-d: token ``i`` is of batch row ``i``. Or ``[num_tokens]``: each
                request has K tokens in a row, token ``i`` is of batch row ``i // K``.
            temperature: float32 ``[max_num_reqs]`` by slot; 0 where the request is greedy.
            out: float32 ``[max_num_reqs, K]`` by batch row, probabilities.
            drawn_tokens: int ``[num_tokens]``, only where ``needs_drawn_tokens``.
        """
        raise NotImplementedError

    def predict_block(
        self, hidden_states: torch.Tensor, markov_embeds: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Write all of ``out`` ``[num_reqs, K]`` from what the confidence head reads.

        Args:
            hidden_states: ``[num_reqs * K, hidden size]`` of the drafter's backbone.
            markov_embeds: ``[num_reqs * K, rank]`` of the token before each position.
            out: float32 ``[num_reqs, K]``, probabilities.
        """
        raise NotImplementedError

    def add_request(self, slot: int) -> None:
        """A new request has taken the slot; called on the host, before its first step.

        vLLM may grade a request in its first step, as if drafts that it never had were rejected.
        """

    def observe(
        self,
        idx_mapping: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> None:
        """Learn what became of the last drafts; called before the next ones are predicted.

        Args:
            idx_mapping: int ``[num_reqs]``, slots.
            num_sampled: int ``[num_reqs]``, accepted drafts and one token of the target's own; 0
                while the request is still in its prompt.
            num_rejected: int ``[num_reqs]``, drafts that were verified and not accepted.
            mask: bool ``[num_reqs]``, True where the request may teach; None: all may. One that
                may not is under what only the target applies (a grammar, penalties, top-k, ...),
                so that its verdicts say little about the drafts of others.
        """

    def warm_up(
        self, idx_mapping: torch.Tensor, num_sampled: torch.Tensor, num_rejected: torch.Tensor
    ) -> None:
        """Compile what :meth:`observe` will run, with a mask or without, now or many steps later.

        Called before the first request, with what ``observe`` is given, and nothing is learnt. One
        from elsewhere need not have it: its first observations compile.
        """

    def snapshot(self) -> dict[str, torch.Tensor]:
        """The state by name, for whoever wants to see it; empty where there is none."""
        return {}

    @property
    def state_kind(self) -> str | None:
        """What must be equal for a state to mean the same, as "name 2"; None: there is no state."""
        return None

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """What a restart goes on from, by name: the scorer's own tensors, and not copies of them.

        Counters that the host keeps are tensors on the CPU, made when they are asked for.
        """
        return {}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on from what another one's :meth:`state_tensors` had, in place.

        Args:
            tensors: on the CPU; of the names, shapes and dtypes that this one has.

        Raises:
            ValueError: nobody can go on from it; nothing was taken over.
        """
