# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The interface of what estimates acceptance, and the confidence head behind it."""

import pytest
import torch

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.spec_decode import acceptance_scorer as module
from vllm.v1.worker.gpu.spec_decode.acceptance_scorer import (
    AcceptanceScorer,
    ConfidenceHeadScorer,
    set_acceptance_scorer_factory,
)

DEVICE = current_platform.device_type


def test_confidence_head_is_written_in_place():
    def compute_confidence(hidden_states, markov_embeds):
        return torch.sigmoid(hidden_states.sum(-1) + markov_embeds.sum(-1))

    scorer = ConfidenceHeadScorer(compute_confidence)
    assert scorer.needs_confidence_head
    assert not scorer.needs_draft_logits
    hidden_states = torch.randn(2 * 3, 4, device=DEVICE)
    markov_embeds = torch.randn(2 * 3, 5, device=DEVICE)
    buffer = torch.full((4, 3), 0.5, device=DEVICE)
    # A view, as the speculator's of its buffer, which graphs read.
    scorer.predict_block(hidden_states, markov_embeds, buffer[:2])
    expected = compute_confidence(hidden_states, markov_embeds)
    torch.testing.assert_close(buffer[:2].flatten(), expected)
    assert (buffer[2:] == 0.5).all()


def test_a_scorer_is_told_everything_and_needs_nothing():
    scorer = AcceptanceScorer()
    assert not scorer.needs_draft_logits
    assert not scorer.needs_confidence_head
    # Whoever scores by the drawn token biases the output, and has to say so.
    assert not scorer.needs_drawn_tokens
    out = torch.ones(2, 3, device=DEVICE)
    ones = torch.ones(2, dtype=torch.int32, device=DEVICE)
    scorer.predict(torch.randn(2, 8, device=DEVICE), ones, ones, ones, out)
    scorer.predict_block(out, out, out)
    scorer.observe(ones, ones, ones)
    assert (out == 1).all()
    assert scorer.snapshot() == {}


def test_there_is_one_factory(monkeypatch):
    def factory(inputs):
        return AcceptanceScorer()

    monkeypatch.setattr(module, "_factory", None)
    set_acceptance_scorer_factory(factory)
    set_acceptance_scorer_factory(factory)
    assert module._factory is factory
    with pytest.raises(ValueError, match="is set already"):
        set_acceptance_scorer_factory(lambda inputs: AcceptanceScorer())
