# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

import pytest
import torch

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
    _assign_draft_token_budget_compiled,
)


@pytest.mark.skipif(not current_platform.is_cpu(), reason="compiled elsewhere")
def test_budget_is_assigned_without_compiling():
    confidences = torch.tensor([[0.9, 0.5], [0.8, 0.8], [0.1, 0.9]])
    capacities = torch.tensor([2, 1, 2], dtype=torch.int32)
    with torch.compiler.set_stance("fail_on_recompile"):
        _assign_draft_token_budget_compiled(
            confidences, torch.tensor([0, 1, 2]), capacities, 3, 2
        )
    # Survivals: 0.9 0.45 | 0.8, the second is not scheduled | 0.1 0.09
    assert capacities.tolist() == [2, 1, 0]
