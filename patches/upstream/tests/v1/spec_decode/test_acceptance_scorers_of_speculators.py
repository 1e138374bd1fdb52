# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Speculators take their acceptance estimates from whatever scorer they were given."""

from types import SimpleNamespace

import pytest
import torch

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.spec_decode import acceptance_scorer as scorer_module
from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import (
    OnlineAcceptanceEstimator,
)
from vllm.v1.worker.gpu.spec_decode.acceptance_scorer import (
    AcceptanceScorer,
    AcceptanceScorerInputs,
    ConfidenceHeadScorer,
    create_acceptance_scorer,
    set_acceptance_scorer_factory,
)
from vllm.v1.worker.gpu.spec_decode.dflash2.speculator import DFlash2Speculator
from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator
from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

DEVICE = torch.device(current_platform.device_type)
NUM_REQS, NUM_STEPS, VOCAB_SIZE = 2, 3, 8


class Recorder(AcceptanceScorer):
    needs_draft_logits = True

    def __init__(self, inputs=None):
        self.inputs = inputs
        self.scored = []

    def predict(
        self, logits, idx_mapping, draft_step, temperature, out, drawn_tokens=None
    ):
        self.scored.append((logits, draft_step, drawn_tokens))
        out[: len(logits), draft_step] = 0.5


class TokenRecorder(Recorder):
    needs_drawn_tokens = True


class HeadScorer(AcceptanceScorer):
    needs_confidence_head = True


@pytest.fixture
def use_factory(monkeypatch):
    monkeypatch.setattr(scorer_module, "_factory", None)
    return set_acceptance_scorer_factory


def make_inputs(compute_confidence=None):
    return AcceptanceScorerInputs(
        vllm_config=None,
        max_num_reqs=NUM_REQS,
        num_speculative_steps=NUM_STEPS,
        device=DEVICE,
        has_draft_logits=True,
        compute_confidence=compute_confidence,
    )


def test_choice_without_a_plugin_is_as_before(use_factory):
    estimator = create_acceptance_scorer(make_inputs())
    assert type(estimator) is OnlineAcceptanceEstimator
    assert estimator.needs_draft_logits
    assert estimator.snapshot()["intercepts"].shape == (NUM_STEPS,)
    head = create_acceptance_scorer(make_inputs(lambda hidden_states, embeds: None))
    assert type(head) is ConfidenceHeadScorer


def test_factory_of_a_plugin_chooses(use_factory):
    use_factory(Recorder)
    inputs = make_inputs()
    assert create_acceptance_scorer(inputs).inputs is inputs


def make_speculator(base=DraftModelSpeculator, **attributes):
    class Speculator(base):
        def __init__(self):
            vars(self).update(attributes)
            self.device = DEVICE
            self.draft_logits = None
            self.draft_watermarker = None
            self.enable_adaptive_verification = True
            self.max_num_reqs = NUM_REQS
            self.num_speculative_steps = NUM_STEPS
            self.speculative_config = SimpleNamespace(enable_adaptive_verification=True)
            self.temperature = torch.ones(NUM_REQS, device=DEVICE)
            self.use_local_argmax_reduction = False
            self.vllm_config = SimpleNamespace(
                compilation_config=SimpleNamespace(static_forward_context={}),
                model_config=SimpleNamespace(supports_multimodal_inputs=False),
            )
            self.draft_token_confidence_probs = torch.ones(
                NUM_REQS, NUM_STEPS, device=DEVICE
            )

        def load_draft_model(self, target_model, target_attn_layer_names):
            return self.draft_model

        def _validate_local_argmax_reduction(self):
            pass

    Speculator.__abstractmethods__ = frozenset()
    return Speculator()


def draft_model(confidence_head=None):
    model = torch.nn.Module()
    model.model = SimpleNamespace(confidence_head=confidence_head)
    model.compute_confidence = lambda hidden_states, embeds: hidden_states
    return model


@pytest.mark.parametrize("confidence_head", [None, object()])
def test_dspark_offers_its_head(confidence_head, use_factory):
    made = []
    use_factory(lambda inputs: made.append(inputs) or Recorder())
    model = draft_model(confidence_head)
    speculator = make_speculator(DSparkSpeculator, draft_model=model)
    speculator.load_model(torch.nn.Module())
    (inputs,) = made
    assert inputs.num_speculative_steps == NUM_STEPS
    assert inputs.compute_confidence is (confidence_head and model.compute_confidence)
    # The plugin took another scorer, so the head is not run.
    assert not speculator.use_confidence_head


def test_dspark_runs_its_head_without_a_plugin(use_factory):
    model = draft_model(object())
    speculator = make_speculator(DSparkSpeculator, draft_model=model)
    speculator.load_model(torch.nn.Module())
    assert speculator.use_confidence_head


@pytest.mark.parametrize(
    ("scorer", "local_argmax", "reason"),
    [
        (HeadScorer, False, "needs a confidence head, which this draft"),
        (Recorder, True, "which use_local_argmax_reduction never materializes"),
    ],
)
def test_scorer_that_cannot_work_is_refused(scorer, local_argmax, reason, use_factory):
    use_factory(lambda inputs: scorer())
    speculator = make_speculator(draft_model=torch.nn.Module())
    speculator.use_local_argmax_reduction = local_argmax
    with pytest.raises(ValueError, match=reason):
        speculator.load_model(torch.nn.Module())


@pytest.mark.parametrize("scorer", [Recorder(), TokenRecorder()])
def test_drafts_are_scored_after_they_are_drawn(scorer):
    logits = torch.randn(NUM_REQS, VOCAB_SIZE, device=DEVICE)
    speculator = make_speculator(
        acceptance_scorer=scorer,
        model=SimpleNamespace(compute_logits=lambda hidden_states: hidden_states),
    )
    idx_mapping = torch.arange(NUM_REQS, device=DEVICE)
    drafts = speculator.sample_draft(
        logits, idx_mapping, idx_mapping, speculator.temperature, None, 1, None
    )
    ((scored, draft_step, drawn_tokens),) = scorer.scored
    assert scored is logits and draft_step == 1
    # Only a scorer that asks for the tokens is given them.
    assert drawn_tokens is (drafts if scorer.needs_drawn_tokens else None)
    confidences = speculator.draft_token_confidence_probs
    assert confidences.tolist() == [[1, 0.5, 1]] * NUM_REQS


def test_dflash2_gives_the_columns_of_the_drawn_tokens():
    scorer = TokenRecorder()
    num_sample, top_k = NUM_REQS * NUM_STEPS, 4
    candidates = torch.arange(num_sample * top_k, device=DEVICE).view(num_sample, top_k)
    columns = torch.tensor([[0, 3, 1], [2, 2, 0]], device=DEVICE)
    drafts = candidates.view(NUM_REQS, NUM_STEPS, top_k).gather(-1, columns[..., None])
    scores = torch.randn(NUM_REQS, NUM_STEPS, top_k, device=DEVICE)
    speculator = make_speculator(
        DFlash2Speculator,
        acceptance_scorer=scorer,
        top_k=top_k,
        draft_tokens=drafts.squeeze(-1),
        sample_indices=torch.arange(num_sample, device=DEVICE),
        sample_pos=None,
        sample_idx_mapping=torch.arange(NUM_REQS, device=DEVICE).repeat_interleave(
            NUM_STEPS
        ),
        sample_col=0,
        seeds=None,
        use_fp64_gumbel=False,
        model=SimpleNamespace(compute_candidates=lambda h: (candidates, candidates)),
        candidate_sampler=SimpleNamespace(scores=scores, sample=lambda *args: None),
        _run_model=lambda *args: torch.zeros(num_sample, 2, device=DEVICE),
        _score_candidates=lambda *args: scores,
    )
    speculator.sample_col = torch.arange(NUM_STEPS, device=DEVICE).repeat(NUM_REQS)
    speculator.draft_token_confidence_probs = torch.ones(
        num_sample, NUM_STEPS, device=DEVICE
    )
    speculator._generate_draft(NUM_REQS, num_sample, None, None, None)
    ((scored, _, drawn_tokens),) = scorer.scored
    torch.testing.assert_close(scored, scores.flatten(0, 1))
    assert drawn_tokens.tolist() == columns.flatten().tolist()
