# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How many drafts are verified, and which, is a policy's decision."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.spec_decode import adaptive_verification as module
from vllm.v1.worker.gpu.spec_decode import draft_budget as policy_module
from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
    AdaptiveVerificationManager,
    GreedyDraftBudgetPolicy,
    maybe_create_adaptive_verification_manager,
)
from vllm.v1.worker.gpu.spec_decode.draft_budget import (
    DraftBudgetInputs,
    DraftBudgetPolicy,
    set_draft_budget_policy_factory,
)

DEVICE = torch.device(current_platform.device_type)
# The survivals are 0.9, 0.72 | 0.6, 0.3.
CONFIDENCES = np.array([[0.9, 0.8], [0.6, 0.5]], dtype=np.float32)


class FixedPolicy(DraftBudgetPolicy):
    def __init__(self, budget):
        self.budget = budget
        self.seen = []

    def choose(self, inputs):
        self.seen.append(inputs)
        return self.budget

    def assign(self, confidence_probs, idx_mapping, capacities, draft_budget):
        capacities.zero_()
        capacities[0] = draft_budget


def make_inputs(verify_cost_ms, scheduled=(2, 2), max_draft_budget=4):
    return DraftBudgetInputs(
        confidences=CONFIDENCES,
        scheduled_drafts=np.array(scheduled, dtype=np.int32),
        num_non_draft_tokens=2,
        num_sampling_requests=2,
        max_draft_budget=max_draft_budget,
        draft_cost_ms=1.0,
        verify_cost_ms=np.array(verify_cost_ms, dtype=np.float64),
    )


@pytest.mark.parametrize(
    ("inputs", "budget"),
    [
        # Per ms: 2 / 2, 2.9 / 2, 3.62 / 2, 4.22 / 3, 4.52 / 4.
        (make_inputs([0, 0, 1, 1, 1, 2, 3]), 2),
        # Nothing costs more.
        (make_inputs([1] * 7), 4),
        (make_inputs([1] * 7, max_draft_budget=3), 3),
        # Only scheduled drafts count.
        (make_inputs([1] * 7, scheduled=(1, 0), max_draft_budget=1), 1),
        # Every draft costs more than it may yield.
        (make_inputs([0, 0, 1, 9, 18, 27, 36]), 0),
    ],
)
def test_own_policy_takes_the_most_tokens_per_time(inputs, budget):
    assert GreedyDraftBudgetPolicy().choose(inputs) == budget


def test_own_policy_splits_by_survival(monkeypatch):
    monkeypatch.setattr(
        module,
        "_assign_draft_token_budget_compiled",
        module._assign_draft_token_budget,
    )
    capacities = torch.tensor([2, 2], dtype=torch.int32, device=DEVICE)
    GreedyDraftBudgetPolicy().assign(
        torch.from_numpy(CONFIDENCES).to(DEVICE),
        torch.tensor([0, 1], device=DEVICE),
        capacities,
        3,
    )
    assert capacities.tolist() == [2, 1]


def make_manager(policy):
    manager = AdaptiveVerificationManager.__new__(AdaptiveVerificationManager)
    manager.num_speculative_steps = 2
    manager.num_bonus_tokens = 1
    manager._max_total_logits = 1 << 20
    manager._policy = policy
    manager._stale_confidences = [SimpleNamespace(np=CONFIDENCES)]
    manager._stale_idx = 0
    manager.cost_tables = np.arange(3.0), np.ones(7)
    manager.req_states = SimpleNamespace(
        req_id_to_index={"a": 0, "b": 1},
        num_computed_tokens_np=np.array([10, 0]),
        prefill_len=SimpleNamespace(np=np.array([10, 9])),
    )
    return manager


def num_tokens_of(manager):
    return manager.get_num_tokens({"a": 3, "b": 4}, {"a": [0, 0]})


def test_manager_asks_the_policy():
    policy = FixedPolicy(1)
    # A token of each request that is no draft, and one draft; b prefills 4.
    assert num_tokens_of(make_manager(policy)) == 1 + 4 + 1
    (inputs,) = policy.seen
    np.testing.assert_array_equal(inputs.confidences, CONFIDENCES)
    assert inputs.scheduled_drafts.tolist() == [2, 0]
    assert inputs.num_non_draft_tokens == 5
    # b is still in its prefill after this step.
    assert inputs.num_sampling_requests == 1
    assert inputs.max_draft_budget == 2
    assert inputs.draft_cost_ms == 2.0
    assert len(inputs.verify_cost_ms) == 7


@pytest.mark.parametrize("budget", [-1, 3])
def test_budget_out_of_bounds_is_refused(budget):
    with pytest.raises(
        ValueError, match=f"FixedPolicy chose a draft budget of {budget}"
    ):
        num_tokens_of(make_manager(FixedPolicy(budget)))


@pytest.fixture
def created(monkeypatch):
    monkeypatch.setattr(policy_module, "_factory", None)
    monkeypatch.setattr(
        module, "AdaptiveVerificationManager", lambda *args, **kwargs: kwargs["policy"]
    )

    def created():
        return maybe_create_adaptive_verification_manager(
            enable_adaptive_verification=True,
            attn_groups=[],
            req_states=SimpleNamespace(device=DEVICE, num_speculative_steps=2),
            query_start_loc=None,
            num_bonus_tokens=1,
            max_total_logits=1,
            vllm_config="the config",
        )

    return created


def test_factory_of_a_plugin_makes_the_policy(created):
    assert created() is None
    asked = []

    def factory(vllm_config, device):
        asked.append((vllm_config, device))
        return FixedPolicy(0)

    set_draft_budget_policy_factory(factory)
    set_draft_budget_policy_factory(factory)
    assert isinstance(created(), FixedPolicy)
    assert asked == [("the config", DEVICE)]
    with pytest.raises(ValueError, match="is set already"):
        set_draft_budget_policy_factory(lambda vllm_config, device: FixedPolicy(0))
