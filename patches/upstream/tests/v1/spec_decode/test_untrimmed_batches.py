# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.spec_decode import adaptive_verification as av

if current_platform.is_cpu():
    import vllm.v1.worker.cpu.shm  # noqa: F401 (replaces torch.cuda's streams)

DEVICE = torch.device(current_platform.device_type)
MAX_NUM_REQS = 8
NUM_STEPS = 3


@pytest.fixture
def manager(monkeypatch):
    # Compiling it takes longer than all of this, and changes no result.
    monkeypatch.setattr(
        av, "_assign_draft_token_budget_compiled", av._assign_draft_token_budget
    )
    req_states = SimpleNamespace(
        num_speculative_steps=NUM_STEPS,
        max_num_reqs=MAX_NUM_REQS,
        max_num_batched_tokens=256,
        device=DEVICE,
        req_id_to_index={name: i for i, name in enumerate("abcdefgh")},
        num_computed_tokens_np=np.full(MAX_NUM_REQS, 9, dtype=np.int32),
        prefill_len=SimpleNamespace(np=np.full(MAX_NUM_REQS, 9, dtype=np.int32)),
    )
    query_start_loc = torch.full((MAX_NUM_REQS + 1,), -1, device=DEVICE)
    manager = av.maybe_create_adaptive_verification_manager(
        enable_adaptive_verification=True,
        attn_groups=[],
        req_states=req_states,
        query_start_loc=query_start_loc.to(torch.int32),
        num_bonus_tokens=1,
        max_total_logits=1 << 20,
        vllm_config=None,
    )
    for slot in manager._stale_confidences:
        slot.np.fill(0.5)
    return manager


def price(manager, fixed):
    """A step of n tokens costs `fixed` + n."""
    manager.cost_tables = np.zeros(MAX_NUM_REQS + 1), fixed + np.arange(257.0)


def compact(manager, scheduled, drafts):
    """As prepare_inputs() does, up to the reallocation, for requests a, b, ..."""
    req_ids = list("abcdefgh"[: len(scheduled)])
    num_tokens = manager.get_num_tokens(
        dict(zip(req_ids, scheduled)),
        {req_id: [0] * n for req_id, n in zip(req_ids, drafts) if n},
    )
    num_drafts = np.array(drafts, dtype=np.int32)
    cu_num_logits = np.zeros(len(req_ids) + 1, dtype=np.int32)
    np.cumsum(num_drafts + 1, out=cu_num_logits[1:])
    compacted, cu_num_logits = manager.compact_batch(
        num_drafts, np.array(scheduled, dtype=np.int32), cu_num_logits
    )
    query_start_loc = np.full(MAX_NUM_REQS + 1, num_tokens, dtype=np.int32)
    query_start_loc[0] = 0
    np.cumsum(compacted, out=query_start_loc[1 : len(req_ids) + 1])
    return req_ids, cu_num_logits, query_start_loc


@pytest.mark.parametrize(
    ("scheduled", "drafts"),
    [
        ([4], [3]),
        ([4, 3, 2], [3, 2, 1]),
        ([4, 4, 1, 17], [3, 3, 0, 0]),
        ([4] * MAX_NUM_REQS, [3] * MAX_NUM_REQS),
    ],
)
def test_reallocation_has_nothing_to_add_to_an_untrimmed_batch(
    manager, scheduled, drafts
):
    price(manager, 1e9)
    req_ids, cu_num_logits, query_start_loc = compact(manager, scheduled, drafts)
    assert not manager.trims_batch

    # What it would write, padding included, is what the host has made.
    manager._batch_budget = (
        dict(zip(req_ids, drafts)),
        {r: n - d for r, n, d in zip(req_ids, scheduled, drafts)},
        sum(drafts),
    )
    idx_mapping = torch.arange(len(req_ids), device=DEVICE)
    written, starts, num_drafts, *_ = manager.reallocate_drafts(req_ids, idx_mapping)
    assert written.tolist() == cu_num_logits.tolist()
    assert starts.tolist() == query_start_loc.tolist()
    assert num_drafts == sum(drafts)


def test_a_trimmed_batch_is_reallocated_once(manager):
    price(manager, 6.0)
    req_ids, _, query_start_loc = compact(manager, [4, 4, 4], [3, 3, 3])
    assert manager.trims_batch
    idx_mapping = torch.arange(3, device=DEVICE)
    _, starts, num_drafts, *_ = manager.reallocate_drafts(req_ids, idx_mapping)
    assert 0 < num_drafts < 9
    assert int(starts[-1]) == query_start_loc[-1] == 3 + num_drafts
    assert not manager.trims_batch


def test_kinds_of_batches_follow_each_other(manager):
    for fixed, trims in ((1e9, False), (6.0, True), (1e9, False), (0.0, True)):
        price(manager, fixed)
        req_ids, *_ = compact(manager, [4, 4], [3, 3])
        assert manager.trims_batch == trims
        if trims:
            manager.reallocate_drafts(req_ids, torch.arange(2, device=DEVICE))
