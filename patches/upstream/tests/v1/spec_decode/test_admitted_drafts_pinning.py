# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

from types import SimpleNamespace

import torch

from vllm.platforms import current_platform
from vllm.utils.torch_utils import PIN_MEMORY
from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
    maybe_create_adaptive_verification_manager,
)

if current_platform.is_cpu():
    import vllm.v1.worker.cpu.shm  # noqa: F401 (replaces torch.cuda's streams)


def test_admitted_drafts_are_pinned_only_where_they_can_be():
    device = torch.device(current_platform.device_type)
    manager = maybe_create_adaptive_verification_manager(
        enable_adaptive_verification=True,
        attn_groups=[],
        req_states=SimpleNamespace(
            num_speculative_steps=3, max_num_reqs=8, device=device
        ),
        query_start_loc=torch.empty(9, dtype=torch.int32, device=device),
        num_bonus_tokens=1,
        max_total_logits=64,
        vllm_config=None,
        copy_admitted_drafts_to_host=True,
    )
    assert manager._admitted_drafts_cpu.shape == (8,)
    assert manager._admitted_drafts_cpu.is_pinned() == PIN_MEMORY
