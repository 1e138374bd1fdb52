# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""An acceptance estimate that is not finite costs no other request its drafts."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
    AdaptiveVerificationManager,
    _assign_draft_token_budget,
)

NOT_FINITE = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("broken", NOT_FINITE)
def test_the_device_verifies_what_has_no_estimate(broken):
    device = current_platform.device_type
    confidences = torch.tensor([[0.9, 0.8], [broken, 0.5], [0.7, 0.6]], device=device)
    capacities = torch.tensor([2, 2, 2], dtype=torch.int32, device=device)
    idx_mapping = torch.tensor([0, 1, 2], device=device)
    _assign_draft_token_budget(confidences, idx_mapping, capacities, 4, 2)
    # The survivals are 0.9, 0.72 | 1, 0.5 | 0.7, 0.42.
    assert capacities.tolist() == [2, 1, 1]


@pytest.mark.parametrize("broken", NOT_FINITE)
def test_the_host_keeps_the_budget_of_all_others(broken):
    num_reqs, num_drafts = 16, 7
    req_ids = [str(i) for i in range(num_reqs)]
    confidences = np.full((num_reqs, num_drafts), 0.9, dtype=np.float32)
    confidences[3, 2] = broken
    manager = AdaptiveVerificationManager.__new__(AdaptiveVerificationManager)
    manager.num_speculative_steps = num_drafts
    manager.num_bonus_tokens = 1
    manager._max_total_logits = 1 << 20
    manager._stale_confidences = [SimpleNamespace(np=confidences)]
    manager._stale_idx = 0
    manager.req_states = SimpleNamespace(
        req_id_to_index={req_id: i for i, req_id in enumerate(req_ids)},
        num_computed_tokens_np=np.full(num_reqs, 10),
        prefill_len=SimpleNamespace(np=np.full(num_reqs, 10)),
    )
    # A token more costs nothing, so every draft is worth its verification.
    max_tokens = num_reqs * (1 + num_drafts)
    manager.cost_tables = np.ones(num_reqs + 1), np.ones(max_tokens + 1)
    num_tokens = manager.get_num_tokens(
        dict.fromkeys(req_ids, 1 + num_drafts),
        dict.fromkeys(req_ids, [0] * num_drafts),
    )
    assert num_tokens == max_tokens
