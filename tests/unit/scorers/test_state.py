"""The confidence head behind the scorer's interface, and scorers without state."""

from types import SimpleNamespace
from typing import Any

import torch

from vllm_av.scorers.base import Scorer, ScorerContext
from vllm_av.scorers.confidence_head import ConfidenceHead

SLOTS, STEPS = 6, 3
UNTOUCHED = -7.0


def context(**changes: Any) -> ScorerContext:
    arguments: dict[str, Any] = {
        "num_speculative_steps": STEPS,
        "max_num_reqs": SLOTS,
        "device": torch.device("cpu"),
        "has_draft_logits": True,
        "confidence_head": None,
        "config": SimpleNamespace(),
    }
    return ScorerContext(**arguments | changes)


def test_the_head_fills_the_rows_of_the_batch_in_place() -> None:
    seen = []

    def head(hidden: torch.Tensor, embeds: torch.Tensor) -> torch.Tensor:
        seen.append((hidden, embeds))
        return torch.arange(6.0) / 10

    hidden, embeds = torch.zeros(6, 4), torch.zeros(6, 2)
    buffer = torch.full((SLOTS, STEPS), UNTOUCHED)
    ConfidenceHead(context(confidence_head=head)).predict_block(hidden, embeds, buffer[:2])
    assert seen[0][0] is hidden
    assert seen[0][1] is embeds
    torch.testing.assert_close(buffer[:2], torch.tensor([[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]]))
    assert (buffer[2:] == UNTOUCHED).all()


def test_who_learns_nothing_has_no_state() -> None:
    scorer = Scorer(context())
    assert scorer.snapshot() == {}
    ones = torch.ones(2, dtype=torch.int32)
    scorer.observe(ones, ones, ones)
    assert scorer.snapshot() == {}
