# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Acceptance scorers are told which request state is taken by a new request."""

from types import SimpleNamespace

import pytest

from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.spec_decode.acceptance_scorer import AcceptanceScorer
from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator


class Scorer(AcceptanceScorer):
    def __init__(self):
        self.taken = []

    def add_request(self, req_idx):
        self.taken.append(req_idx)


class Speculator(DraftModelSpeculator):
    def __init__(self, scorer):
        self.acceptance_scorer = scorer


Speculator.__abstractmethods__ = frozenset()


class Added(Exception):
    pass


def add_request(speculator):
    """What the runner does with a new request, up to its model's state."""

    def stop(req_index, new_req_data):
        raise Added

    runner = GPUModelRunner.__new__(GPUModelRunner)
    runner._remove_request = lambda req_id: None
    runner.req_states = SimpleNamespace(
        add_request=lambda **kwargs: None, req_id_to_index={"new": 5}
    )
    runner.adaptive_verification = None
    runner.speculator = speculator
    runner.pooling_runner = None
    runner.encoder_cache = None
    runner.model_state = SimpleNamespace(add_request=stop)
    request = SimpleNamespace(
        req_id="new",
        prefill_token_ids=[1, 2],
        prompt_len=2,
        sampling_params=None,
        num_computed_tokens=0,
    )
    with pytest.raises(Added):
        runner.add_requests(SimpleNamespace(scheduled_new_reqs=[request]))


def test_scorer_is_told():
    scorer = Scorer()
    add_request(Speculator(scorer))
    assert scorer.taken == [5]


@pytest.mark.parametrize("speculator", [None, Speculator(None)])
def test_others_are_not(speculator):
    add_request(speculator)


def test_a_scorer_need_not_care():
    add_request(Speculator(AcceptanceScorer()))
