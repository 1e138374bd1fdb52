"""Records drafts with their grades while an engine runs, around the scorer that is in force.

It is what vLLM is given in the scorer's place. What the scorer says reaches vLLM as it is; beside
it, the features of the draft logits are kept by slot until the target has graded the drafts, then
copied to the host, where :mod:`vllm_av.replay.grades` makes rows of them.

It asks vLLM for the drawn tokens, to record log q of them. That makes nothing lossy: the scorer in
force is not handed them, so what is admitted depends on them no more than without a recording.

Rule: no score changes. What runs within a CUDA graph (``predict``, ``predict_block``) writes its
own buffers in place, waits for nothing and has no shape that depends on a value; what the host
needs is copied without waiting and looked at when it has arrived.
"""

import multiprocessing.util
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vllm_av.replay.draft_features import draft_features
from vllm_av.replay.grades import SLOT_COLUMNS, Grades
from vllm_av.replay.writer import TraceWriter
from vllm_av.scorers.guard import GuardedScorer

_RING = 8
"""Steps whose copies may be under way at once; of the oldest of more it is waited for."""
_TEMPERATURE, _CONFIDENCE, _HEAD = (
    SLOT_COLUMNS.index(name) for name in ("temperature", "confidence", "head")
)
_COMES_WITH_LOGITS = slice(0, _HEAD)


@dataclass
class _Copy:
    """A step on its way to the host."""

    drafts: torch.Tensor
    said: torch.Tensor
    arrived: Any
    count: int = 0
    holders: NDArray[np.int64] | None = None


class RecordingScorer:
    """The scorer in force, and a recording of what it was asked; vLLM's ``AcceptanceScorer``.

    Args:
        scorer: the one in force.
        max_num_reqs: request slots, S.
        num_speculative_steps: drafts per request and step, K.
        device: where the logits are.
        head: the checkpoint's confidence head, recorded whether or not the scorer reads it.
        writer: where the rows go; None on the ranks that write nothing, but must see the same
            logits as the one that does.
        censored: whether a scheduled draft was not verified so far.

    Attributes:
        workload: names the workload of the request that takes a slot; None: it has none.
        grades: what counts and numbers what is recorded.
    """

    needs_draft_logits = True
    needs_drawn_tokens = True

    def __init__(
        self,
        scorer: GuardedScorer,
        max_num_reqs: int,
        num_speculative_steps: int,
        device: torch.device,
        head: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None,
        writer: TraceWriter | None,
        censored: Callable[[], bool],
    ) -> None:
        self.guarded = scorer
        self.name, self.traits, self.scorer = scorer.name, scorer.traits, scorer.scorer
        self.needs_confidence_head = head is not None
        self.workload: Callable[[int], str | None] = lambda slot: None
        self.writer = writer
        self._slots, self._positions = max_num_reqs, num_speculative_steps
        self._head = head
        self._censored = censored
        self.grades = Grades(max_num_reqs)
        # One slot more than there are: where padding goes.
        shape = (max_num_reqs + 1, num_speculative_steps, len(SLOT_COLUMNS))
        self._drafts = torch.full(shape, float("nan"), device=device)
        self._row_slots = torch.full((max_num_reqs,), max_num_reqs, device=device)
        self._rows = torch.arange(max_num_reqs * num_speculative_steps, device=device)
        self._free = [self._copy(device) for _ in range(_RING if device.type == "cuda" else 0)]
        self._under_way: deque[_Copy] = deque()
        # Not atexit: a child of multiprocessing leaves without it.
        multiprocessing.util.Finalize(None, self.close, exitpriority=10)

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
        drawn_tokens: torch.Tensor | None = None,
    ) -> None:
        """As :meth:`vllm_av.scorers.base.Scorer.predict`; always with the drawn tokens."""
        asked = self.guarded.needs_draft_logits
        if asked:
            self.guarded.predict(logits, idx_mapping, draft_step, temperature, out, drawn_tokens)
        if self.writer is None:
            return
        assert drawn_tokens is not None
        slots = torch.where(idx_mapping >= 0, idx_mapping, self._slots).long()
        rows = self._rows[: len(slots)]
        if draft_step.dim() == 0:
            steps = draft_step.long().expand(len(slots))
            self._row_slots[: len(slots)].copy_(slots)
        else:
            steps, rows = draft_step.long(), rows // self._positions
            self._row_slots[: len(slots) // self._positions].copy_(slots[:: self._positions])
        of_slot = temperature[slots.clamp(max=self._slots - 1)]
        said = out[rows, steps] if asked else torch.full_like(of_slot, float("nan"))
        features = draft_features(logits, of_slot, drawn_tokens)
        kept = torch.cat([features, of_slot[:, None], said[:, None]], dim=1)
        self._drafts[slots, steps, _COMES_WITH_LOGITS] = kept

    def predict_block(
        self, hidden_states: torch.Tensor, markov_embeds: torch.Tensor, out: torch.Tensor
    ) -> None:
        """As :meth:`vllm_av.scorers.base.Scorer.predict_block`; follows the block's ``predict``."""
        asked = self.guarded.needs_confidence_head
        if asked:
            self.guarded.predict_block(hidden_states, markov_embeds, out)
        if self.writer is None:
            return
        assert self._head is not None
        slots = self._row_slots[: len(out)]
        if asked:
            self._drafts[slots, :, _CONFIDENCE] = out
        self._drafts[slots, :, _HEAD] = self._head(hidden_states, markov_embeds).view_as(out)

    def observe(
        self,
        idx_mapping: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        target_only: torch.Tensor | None = None,
    ) -> None:
        """As vLLM's; ``target_only`` are the bits of :mod:`vllm_av.scorers.target_only`."""
        if self.writer is not None and self.writer.failure is None:
            self._record(idx_mapping, num_sampled, num_rejected, target_only)
        self.guarded.observe(idx_mapping, num_sampled, num_rejected, target_only)

    def warm_up(
        self,
        idx_mapping: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        target_only: torch.Tensor | None = None,
    ) -> None:
        """As vLLM's; what is graded here is nobody's, so none of it is recorded."""
        self.guarded.warm_up(idx_mapping, num_sampled, num_rejected, target_only)

    def add_request(self, slot: int) -> None:
        """A new request has taken ``slot``; called on the host, in the order of the steps."""
        self.grades.add_request(slot, self.workload(slot))
        self.guarded.add_request(slot)

    def snapshot(self) -> Any:
        """The scorer's own."""
        return self.guarded.snapshot()

    @property
    def on_failure(self) -> Callable[[Any], object]:
        """Is told an error of the scorer's before it is raised."""
        return self.guarded.on_failure

    @on_failure.setter
    def on_failure(self, told: Callable[[Any], object]) -> None:
        self.guarded.on_failure = told

    def close(self) -> None:
        """End the recording: what was graded is written."""
        if self.writer is not None:
            while self._under_way:
                self._take(wait=True)
            self.writer.close()

    def _record(
        self,
        idx_mapping: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        target_only: torch.Tensor | None,
    ) -> None:
        bits = torch.zeros_like(num_sampled) if target_only is None else target_only
        said = torch.stack(
            [each.to(torch.int32) for each in (idx_mapping, num_sampled, num_rejected, bits)], dim=1
        )
        slots = idx_mapping.long()
        drafts = self._drafts[slots]
        # A position that is not drafted anew, as where vLLM drafts fewer, is none next time.
        self._drafts[slots] = float("nan")
        holders = self.grades.now()
        if said.device.type != "cuda":
            self._write(drafts, said, holders)
            return
        if not self._free:
            self._take(wait=True)
        copy = self._free.pop()
        copy.count, copy.holders = len(slots), holders
        copy.drafts[: copy.count].copy_(drafts, non_blocking=True)
        copy.said[: copy.count].copy_(said, non_blocking=True)
        copy.arrived.record()
        self._under_way.append(copy)
        while self._under_way and self._take(wait=False):
            pass

    def _take(self, *, wait: bool) -> bool:
        """Write the oldest step under way, if it has arrived."""
        copy = self._under_way[0]
        if wait:
            copy.arrived.synchronize()
        elif not copy.arrived.query():
            return False
        self._under_way.popleft()
        assert copy.holders is not None
        # The buffers are used again before the rows are on the disk.
        drafts, said = copy.drafts[: copy.count].clone(), copy.said[: copy.count].clone()
        self._write(drafts, said, copy.holders)
        self._free.append(copy)
        return True

    def _write(self, drafts: torch.Tensor, said: torch.Tensor, holders: NDArray[np.int64]) -> None:
        writer = self.writer
        assert writer is not None
        if writer.info.censoring == "none" and self._censored():
            writer.info = writer.info.model_copy(update={"censoring": "budget"})
        rows = self.grades.rows(drafts.numpy(), said.numpy(), holders)
        writer.add(rows, self.grades.words)

    def _copy(self, device: torch.device) -> _Copy:
        shape = (self._slots, *self._drafts.shape[1:])
        return _Copy(
            torch.empty(shape, pin_memory=True),
            torch.empty((self._slots, 4), dtype=torch.int32, pin_memory=True),
            torch.cuda.Event(),
        )
