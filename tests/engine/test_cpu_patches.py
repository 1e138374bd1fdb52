"""What the ``cpu`` patches change, asked of vLLM's own functions.

Where a patch works round a fault of a compiled operator, a test states the fault too: when it
fails, upstream has mended the operator and the patch can go.
"""

import time

import numpy as np
import pytest
import torch

from tests.engine.harness import Engine

EPSILON = 1e-6


@pytest.fixture(scope="module")
def stacked() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Input ``[groups, tokens, heads, dim]``, weights ``[groups, dim]``, and the right answer."""
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 2, 32, generator=generator)
    weights = 1 + 0.5 * torch.randn(3, 32, generator=generator)
    normed = x * (x.pow(2).mean(-1, keepdim=True) + EPSILON).rsqrt()
    return x, weights, normed * weights[:, None, None]


def test_rms_norm_gives_each_group_its_own_weights(
    stacked: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    from vllm import _custom_ops as ops

    x, weights, right = stacked
    out = torch.empty_like(x)
    ops.rms_norm(out, x, weights, EPSILON)
    torch.testing.assert_close(out, right)


def test_the_compiled_rms_norm_still_reads_the_first_weights_only(
    stacked: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    x, weights, right = stacked
    out = torch.empty_like(x)
    torch.ops._C.rms_norm(out, x, weights, EPSILON)
    torch.testing.assert_close(out[0], right[0])
    torch.testing.assert_close(out[1:], right[1:] / weights[1:, None, None] * weights[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_sampling_parameters_expand_in_their_own_dtype(dtype: torch.dtype) -> None:
    from vllm.utils.cpu_triton_utils import _expand_kernel_impl

    values = torch.tensor([0.3, 0.0, 1.5]).to(dtype)
    out = torch.full((6,), 99, dtype=dtype)
    _expand_kernel_impl(out, values, torch.tensor([2, 5, 6], dtype=torch.int32), 0, 1)
    raw = torch.tensor([0.3, 0.3, 1.0, 1.0, 1.0, 1.5])
    expected = raw if dtype.is_floating_point else torch.ones(6)
    torch.testing.assert_close(out, expected.to(dtype))


def test_events_keep_the_time() -> None:
    import vllm.v1.worker.cpu.shm  # noqa: F401 - puts the placeholder in torch.cuda's place
    from vllm.v1.worker.gpu.async_utils import StepTimingEvents

    events = StepTimingEvents()
    events.forward_start.record()
    time.sleep(0.02)
    events.forward_end.record()
    assert 20 <= events.forward_start.elapsed_time(events.forward_end) < 2_000


def test_cost_tables_are_smooth_only_where_nothing_pads() -> None:
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import build_cost_tables_from_curves

    curve = [(1, 10.0), (4, 40.0)]

    def table(*limit: int) -> list[float]:
        draft, verify = build_cost_tables_from_curves(curve, curve, 6, 6, *limit)
        np.testing.assert_array_equal(draft, verify)
        return list(verify[1:])

    assert table() == [10, 40, 40, 40, 50, 60]  # upstream's default: every size pads
    assert table(4) == [10, 40, 40, 40, 50, 60]
    assert table(0) == [10, 20, 30, 40, 50, 60]


def test_the_engine_has_profiled_what_a_step_costs(adaptive: Engine) -> None:
    draft, verify = adaptive.manager.cost_tables
    requests, tokens = adaptive.runner.max_num_reqs, adaptive.runner.max_num_tokens
    assert len(draft) == requests + 1
    assert len(verify) == tokens + 1
    largest = requests * adaptive.runner.decode_query_len
    assert 0 < draft[1] <= draft[requests]
    assert 0 < verify[1] < verify[largest] < verify[tokens]
    # A step function would give a token that is verified in addition no price.
    assert (np.diff(verify[largest // 2 : tokens]) > 0).all()


def test_the_budget_is_assigned_without_compiling() -> None:
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification as upstream

    confidences = torch.tensor([[0.9, 0.5], [0.8, 0.8], [0.1, 0.9]])
    capacities = torch.tensor([2, 1, 2], dtype=torch.int32)
    upstream._assign_draft_token_budget_compiled(
        confidences, torch.tensor([0, 1, 2]), capacities, 3, 2
    )
    # Survivals .9 .45 | .8 (its second slot is not scheduled) | .1 .09
    assert capacities.tolist() == [2, 1, 0]
    assert upstream._assign_draft_token_budget_compiled is upstream._assign_draft_token_budget
