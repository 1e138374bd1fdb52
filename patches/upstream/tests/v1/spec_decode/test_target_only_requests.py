# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Requests that the drafter cannot know teach the acceptance estimator nothing."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.sample.states import SamplingStates
from vllm.v1.worker.gpu.sample.target_only import TargetOnly
from vllm.v1.worker.gpu.spec_decode import acceptance_estimator as estimator_module
from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import (
    OnlineAcceptanceEstimator,
)
from vllm.v1.worker.gpu.spec_decode.acceptance_scorer import AcceptanceScorer
from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

DEVICE = torch.device(current_platform.device_type)
MAX_NUM_REQS, VOCAB_SIZE = 4, 32


class State:
    """What a request asks of the target's logits, where the test says so."""

    def __init__(self, is_active=lambda params: False):
        self.is_active = is_active

    def add_request(self, req_idx, sampling_params):
        return self.is_active(sampling_params)


def array(value, dtype):
    return SimpleNamespace(np=np.full(MAX_NUM_REQS, value, dtype=dtype))


@pytest.fixture
def sampler():
    sampling_states = SamplingStates.__new__(SamplingStates)
    sampling_states.vocab_size = VOCAB_SIZE
    sampling_states.temperature = array(0, np.float32)
    sampling_states.top_k = array(VOCAB_SIZE, np.int32)
    sampling_states.top_p = array(1, np.float32)
    sampling_states.min_p = array(0, np.float32)
    sampling_states.seeds = array(0, np.int64)
    sampling_states.seeds_set = np.zeros(MAX_NUM_REQS, dtype=bool)
    sampling_states.num_logprobs = np.zeros(MAX_NUM_REQS, dtype=np.int32)

    sampler = Sampler.__new__(Sampler)
    sampler.req_states = SimpleNamespace(device=DEVICE)
    sampler.sampling_states = sampling_states
    sampler.logits_processors = [
        State(lambda params: bool(params.logit_bias)),
        State(lambda params: params.presence_penalty != 0),
        State(lambda params: bool(params.bad_words)),
        State(lambda params: params.extra_args is not None),
    ]
    sampler.target_only_flags = (
        TargetOnly.LOGIT_BIAS,
        TargetOnly.PENALTIES,
        TargetOnly.BAD_WORDS,
        TargetOnly.CUSTOM_LOGITS_PROCESSOR,
    )
    sampler.target_only = np.zeros(MAX_NUM_REQS, dtype=np.int32)
    sampler.needs_logits_processing = np.zeros(MAX_NUM_REQS, dtype=bool)
    sampler.logprob_token_ids_state = State()
    sampler.thinking_budget_state = State(
        lambda params: params.thinking_token_budget is not None
    )
    sampler.trace_replay_state = None
    return sampler


def make_batch(*slots):
    return SimpleNamespace(
        idx_mapping_np=np.array(slots), req_ids=[f"req-{slot}" for slot in slots]
    )


def flags_of(sampler, *slots, grammar=()):
    output = SimpleNamespace(structured_output_request_ids=list(grammar))
    found = sampler.get_target_only(make_batch(*slots), output if grammar else None)
    return found if found is None else found.tolist()


@pytest.mark.parametrize(
    ("params", "flag"),
    [
        ({"top_k": 5}, TargetOnly.TOP_K),
        ({"top_p": 0.5}, TargetOnly.TOP_P),
        ({"min_p": 0.1}, TargetOnly.MIN_P),
        ({"logit_bias": {1: 2.0}}, TargetOnly.LOGIT_BIAS),
        ({"presence_penalty": 1.0}, TargetOnly.PENALTIES),
        ({"bad_words": ["no"]}, TargetOnly.BAD_WORDS),
        ({"thinking_token_budget": 5}, TargetOnly.THINKING_BUDGET),
        ({"extra_args": {"mine": 1}}, TargetOnly.CUSTOM_LOGITS_PROCESSOR),
    ],
)
def test_what_only_the_target_applies_is_kept(params, flag, sampler):
    # The drafter knows the temperature.
    sampler.add_request(0, SamplingParams(temperature=0.7))
    assert flags_of(sampler, 0) is None
    sampler.add_request(2, SamplingParams(temperature=0.7, **params))
    assert flags_of(sampler, 2, 0) == [flag, 0]
    # The next request of that state has a flag of its own, or none.
    sampler.add_request(2, SamplingParams())
    assert flags_of(sampler, 2, 0) is None


def test_a_grammar_is_known_by_the_step(sampler):
    sampler.add_request(1, SamplingParams(presence_penalty=1.0))
    both = TargetOnly.GRAMMAR | TargetOnly.PENALTIES
    assert flags_of(sampler, 1, 0, grammar=["req-1"]) == [both, 0]
    assert flags_of(sampler, 1, 0, grammar=["req-0"]) == [
        TargetOnly.PENALTIES,
        TargetOnly.GRAMMAR,
    ]
    assert flags_of(sampler, 1) == [TargetOnly.PENALTIES]


def test_estimator_leaves_them_out(monkeypatch):
    observed = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda info, grad, idx_mapping, *args, **kwargs: observed.append(
                args[:2]
            )

    monkeypatch.setattr(estimator_module, "_accumulate_kernel", Kernel())
    estimator = OnlineAcceptanceEstimator(MAX_NUM_REQS, 3, DEVICE)
    idx_mapping = torch.arange(3, device=DEVICE)
    num_sampled = torch.tensor([2, 4, 1], device=DEVICE)
    num_rejected = torch.tensor([1, 0, 3], device=DEVICE)
    target_only = torch.tensor([0, TargetOnly.TOP_K, 0], device=DEVICE)
    estimator.observe(idx_mapping, num_sampled, num_rejected, target_only)
    estimator.observe(idx_mapping, num_sampled, num_rejected)
    (without, with_all) = observed
    assert [each.tolist() for each in without] == [[2, 0, 1], [1, 0, 3]]
    assert [each.tolist() for each in with_all] == [[2, 4, 1], [1, 0, 3]]


def test_scorers_are_told_with_the_verdict():
    class Scorer(AcceptanceScorer):
        def observe(self, *args):
            self.seen = args

    class Speculator(DraftModelSpeculator):
        def __init__(self, scorer):
            self.acceptance_scorer = scorer

    Speculator.__abstractmethods__ = frozenset()
    scorer = Scorer()
    verdict = tuple(torch.arange(2, device=DEVICE) for _ in range(4))
    Speculator(scorer).observe_verification(*verdict)
    assert scorer.seen == verdict
