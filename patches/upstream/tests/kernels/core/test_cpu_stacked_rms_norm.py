# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

import pytest
import torch

from vllm import _custom_ops as ops
from vllm.platforms import current_platform

if not current_platform.is_cpu():
    pytest.skip("CPU only", allow_module_level=True)

EPSILON = 1e-6


@pytest.fixture(scope="module", autouse=True)
def kernels():
    current_platform.import_kernels()


def rms_norm(x, weight):
    variance = x.float().pow(2).mean(-1, keepdim=True)
    return (x.float() * torch.rsqrt(variance + EPSILON)).to(x.dtype) * weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 5, 2, 64), (2, 7, 128), (3, 0, 2, 64)])
def test_each_group_has_its_own_weight(shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype)
    # So different that the first group's weight cannot pass for another's.
    weight = torch.randn(shape[0], shape[-1], dtype=dtype) + torch.arange(
        1, shape[0] + 1, dtype=dtype
    ).unsqueeze(1)
    out = torch.empty_like(x)
    ops.rms_norm(out, x, weight, EPSILON)
    expected = torch.stack([rms_norm(x_i, w_i) for x_i, w_i in zip(x, weight)])
    torch.testing.assert_close(out, expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("weight", [torch.linspace(0.5, 2, 64), None])
def test_one_weight_for_all(weight):
    torch.manual_seed(0)
    x = torch.randn(3, 5, 64)
    out = torch.empty_like(x)
    ops.rms_norm(out, x, weight, EPSILON)
    expected = rms_norm(x, 1.0 if weight is None else weight)
    torch.testing.assert_close(out, expected)
