"""What is not compiled runs in Triton's interpreter, rightly and with one warning; what is
wrong is said.
"""

import logging
import math
import struct

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from vllm_av.cpu import backend, install, interpreter
from vllm_av.cpu.launcher import Launcher, launch
from vllm_av.errors import Code, KernelError


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def _twice(x, EXTRA: tl.constexpr = 1):
    return x * 2 + EXTRA


@triton.jit
def _unsupported(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    total = tl.reduce(x, 0, _product)
    tl.store(out_ptr + i, _twice(tl.sort(x) + tl.rand(3, i) + tl.max(x, axis=0)) + total)


@triton.jit
def _other_unsupported(out_ptr, N: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, N), tl.flip(tl.arange(0, N), 0))


def test_one_warning_per_kernel_and_the_right_result(caplog):
    x = torch.tensor([3.0, 1.0, 2.0, 0.5])
    out = torch.zeros(4)
    with caplog.at_level(logging.WARNING, "vllm_av"):
        for dtype in (torch.float32, torch.float32, torch.float64):
            _unsupported[(1,)](x.to(dtype), out, 4)
        _other_unsupported[(1,)](torch.zeros(8), 8)
    messages = [r.getMessage() for r in caplog.records]
    assert len(messages) == 2
    assert (
        f"[{Code.KERNEL_UNSUPPORTED}] the Triton kernel _unsupported has `tl.reduce`" in messages[0]
    )
    assert "test_fallback.py:" in messages[0]
    assert "_other_unsupported" in messages[1]
    assert "\n" not in messages[0]
    # 2 * (sorted + noise + max) + 1 + product, the noise in [0, 1)
    noise = (out - 1 - 3.0) / 2 - 3.0 - x.sort().values
    assert (noise >= 0).all()
    assert (noise < 1).all()


def test_the_interpreter_leaves_no_trace():
    places = [vars(m).copy() for m in (tl, tl.core, tl.math, tl.tensor)]
    builder = vars(interpreter.interpreter_builder).copy()
    call = JITFunction.__call__
    _other_unsupported[(1,)](torch.zeros(8), 8)
    _unsupported[(1,)](torch.ones(4), torch.zeros(4), 4)
    for place, before in zip((tl, tl.core, tl.math, tl.tensor), places, strict=True):
        assert {k: v for k, v in vars(place).items() if before.get(k) is not v} == {}
    after = vars(interpreter.interpreter_builder)
    assert set(after) == set(builder) | {"grid_dim", "grid_idx"}
    assert JITFunction.__call__ is call


def test_a_kernel_error_in_the_interpreter_leaves_no_trace_either():
    @triton.jit
    def broken(out_ptr):
        tl.store(out_ptr, tl.sort(out_ptr))

    before = vars(tl.core).copy()
    with pytest.raises(KernelError, match="list index out of range") as error:
        broken[(1,)](torch.zeros(4))
    assert error.value.code == Code.KERNEL_NEITHER
    assert "\n" not in str(error.value)
    assert vars(tl.core) == before


@triton.jit
def _invalid(out_ptr, N: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, N), tl.arange(0, N) * 3)


@pytest.mark.parametrize("step", ["assemble", "link"])
def test_code_that_llvm_refuses_runs_in_the_interpreter(monkeypatch, tmp_path, caplog, step):
    monkeypatch.setenv("AV_CACHE", str(tmp_path))
    real = getattr(backend, step)
    broken = {
        "assemble": lambda text: real(text.replace("ret void", "ret i32 %nothing")),
        "link": lambda code, entry: real(code, entry + "_that_is_not_there"),
    }
    monkeypatch.setattr(backend, step, broken[step])
    launcher = Launcher(_invalid)
    with caplog.at_level(logging.WARNING, "vllm_av"):
        for dtype in (torch.int32, torch.int32, torch.int64):
            out = torch.zeros(8, dtype=dtype)
            launcher((1,), (out, 8), {})
            assert out.tolist() == list(range(0, 24, 3))
    (message,) = [r.getMessage() for r in caplog.records]
    assert f"[{Code.KERNEL_UNSUPPORTED}] LLVM refused the code of the Triton kernel" in message
    assert "\n" not in message
    assert list(tmp_path.rglob("*.o")) == []


@triton.jit
def _closure_free(out_ptr, v):
    tl.store(out_ptr, v)


def test_install_again_changes_nothing():
    install()
    install()
    assert JITFunction.run is launch


@pytest.mark.parametrize(
    ("args", "kwargs", "given"),
    [
        ((), {}, "no argument `out_ptr`"),
        ((torch.zeros(1),), {}, "no argument `v`"),
        ((torch.zeros(1), 1, 2), {}, "3 arguments"),
        ((torch.zeros(1), "x"), {}, "an argument of type str"),
        ((torch.zeros(4, device="meta"), 1), {}, "a tensor on meta"),
        ((torch.zeros(1), 1), {"v": 2}, "`v` twice"),
        ((torch.zeros(1),), {"v": 2, "w": 3}, "the argument `w`"),
        ((torch.zeros(1), 2**64), {}, "the integer 18446744073709551616"),
        ((torch.zeros(1), -(2**63) - 1), {}, "the integer -9223372036854775809"),
    ],
)
def test_a_wrong_launch_is_refused_in_one_line(args, kwargs, given):
    with pytest.raises(KernelError) as error:
        _closure_free[(1,)](*args, **kwargs)
    assert error.value.code == Code.KERNEL_ARGUMENT
    assert given in str(error.value)


@pytest.mark.parametrize("grid", [4, (), (1.0,), (1, 1, 1, 1), None, lambda _: (1.5,)])
def test_a_wrong_grid_is_refused_in_one_line(grid):
    for kernel in (_closure_free, _other_unsupported):
        with pytest.raises(KernelError, match="a grid of one to three integers") as error:
            kernel[grid](torch.zeros(8), 8)
        assert error.value.code == Code.KERNEL_ARGUMENT


def test_options_of_triton_are_dropped():
    out = torch.zeros(1)
    _closure_free[(1, 1, 1)](out, v=3, num_warps=8, num_stages=2, launch_pdl=False)
    assert out.item() == 3


def test_what_nothing_can_run_is_refused_in_one_line():
    with pytest.raises(KernelError) as error:
        _closure_free[(1,)](torch.zeros(1, dtype=torch.complex64), 1)
    assert error.value.code == Code.KERNEL_NEITHER
    assert "_closure_free" in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_tensor_is_no_mistake():
    out = torch.zeros(1)
    _closure_free[(0,)](torch.zeros(0), 1)
    _closure_free[(1,)](out, 2.5)
    assert out.item() == 2.5


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1e40, math.inf),
        (-1e40, -math.inf),
        (math.inf, math.inf),
        (2.0**128 - 2.0**103, math.inf),
        (2.0**128 - 2.0**103 - 2.0**80, 2.0**128 - 2.0**104),
        (-3.4e38, struct.unpack("<f", struct.pack("<f", -3.4e38))[0]),
    ],
)
def test_a_number_beyond_float32_is_infinite(given, expected):
    out = torch.zeros(1)
    _closure_free[(1,)](out, given)
    assert out.item() == expected
    _closure_free[(1,)](out, math.nan)
    assert math.isnan(out.item())


def test_warmup_and_hooks():
    seen = []
    out = torch.zeros(1)
    _closure_free.add_pre_run_hook(lambda *args, **kwargs: seen.append(args))
    try:
        _closure_free[(1,)](out, 3)
    finally:
        _closure_free.pre_run_hooks.clear()
    assert len(seen) == 1
    _closure_free.warmup(out, 7, grid=(1,))
    assert out.item() == 3
