"""Every launch of the estimators, compiled by Triton itself to machine code for GPUs.

The CPU engine is more lenient than Triton's compiler. That needs no GPU; what such a compiler makes
of the kernels can be run in tests/gpu.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.traffic import CPU, run, traffic
from vllm_av.cpu.launcher import Launcher
from vllm_av.estimator.online import OnlineEstimator, score_top_probability
from vllm_av.estimator.settings import MIXED
from vllm_av.estimator.tempered.online import TemperedEstimator

TYPES = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.bool: "*i1",
}
Variant = tuple[Any, dict[str, str], dict[str, Any], int]


def variant(launcher: Launcher, args: Any, kwargs: Any) -> Variant:
    """The kernel, the types of its arguments, its constants, and its warps."""
    types, constants = {}, {}
    values = launcher._bind(args, kwargs)
    for parameter, value in zip(launcher._jit.params, values, strict=True):
        if parameter.is_constexpr or value is None:
            types[parameter.name], constants[parameter.name] = "constexpr", value
        else:
            types[parameter.name] = TYPES[value.dtype] if hasattr(value, "dtype") else "i32"
    return launcher._jit, types, constants, kwargs.get("num_warps", 4)


def launched(monkeypatch: pytest.MonkeyPatch, positions: int, dtype: torch.dtype) -> list[Variant]:
    """All variants of some steps of each estimator."""
    found: dict[str, Variant] = {}
    real = Launcher.__call__

    def noted(self: Launcher, grid: Any, args: Any, kwargs: Any) -> None:
        made = variant(self, args, kwargs)
        found[f"{self.name} {made[1:]}"] = made
        real(self, grid, args, kwargs)

    settings = replace(MIXED, refit_interval=1)
    with monkeypatch.context() as patch:
        patch.setattr(Launcher, "__call__", noted)
        for kind in (TemperedEstimator, OnlineEstimator):
            for block in (False, True):
                made = traffic(2, slots=4, positions=positions, vocab=1500, dtype=dtype)
                out = torch.zeros(4, positions)
                run(kind(settings, 4, positions, CPU), made, out, block=block)
        logits = torch.randn(2, 1500).to(dtype)
        score_top_probability(logits, torch.arange(2), torch.tensor(0), torch.ones(4), out)
    return list(found.values())


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize(
    ("positions", "dtype", "capability"),
    [(1, torch.float32, 90), (7, torch.bfloat16, 90), (16, torch.float16, 80)],
)
def test_every_launch_compiles(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    positions: int,
    dtype: torch.dtype,
    capability: int,
) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
    names = set()
    for kernel, types, constants, warps in launched(monkeypatch, positions, dtype):
        places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
        source = ASTSource(fn=kernel, signature=types, constexprs=places)
        made = compile(
            source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps}
        )
        assert made.asm["cubin"]
        names.add((kernel.__module__.rpartition("estimator.")[2], kernel.__name__))
    assert names == {
        ("kernels", "partial_sums_kernel"),
        ("kernels", "predict_kernel"),
        ("kernels", "observe_kernel"),
        ("kernels", "refit_kernel"),
        ("tempered.scoring", "feature_kernel"),
        ("tempered.scoring", "score_kernel"),
        ("tempered.kernels", "observe_kernel"),
        ("tempered.kernels", "refit_kernel"),
    }
