"""What is decided while a kernel is compiled: constants, `and` and `or`, static assertions."""

from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from vllm_av.cpu.launcher import Launcher
from vllm_av.cpu.surroundings import surroundings
from vllm_av.errors import Code, KernelError


@triton.jit
def _deciding(out_ptr, F: tl.constexpr, G: tl.constexpr):
    tl.store(out_ptr, F or 5)
    tl.store(out_ptr + 1, 3 and G)
    tl.store(out_ptr + 2, F and 4)
    tl.store(out_ptr + 3, F or 0 or G)
    tl.store(out_ptr + 4, tl.arange(0, F or 8).shape[0])
    tl.store(out_ptr + 5, G and F and 3)


@pytest.mark.parametrize(("f", "g"), [(0, 9), (2, 0), (4, 6), (0, 0)])
def test_and_and_or_give_the_operand_that_decides(both, f, g):
    out = torch.zeros(6, dtype=torch.int32)
    both(_deciding, (1,), out, f, g)
    assert out.tolist() == [f or 5, 3 and g, f and 4, f or 0 or g, f or 8, g and f and 3]


@triton.jit
def _mixed(out_ptr, x, F: tl.constexpr):
    if x > 2 and F:
        tl.store(out_ptr, 1)
    if F or x > 3:
        tl.store(out_ptr + 1, 1)
    if (x > 1 and x < 5) and (F or x == 4):
        tl.store(out_ptr + 2, 1)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("x", [0, 2, 3, 4, 7])
def test_constants_beside_values(both, x, flag):
    out = torch.zeros(3, dtype=torch.int32)
    both(_mixed, (1,), out, x, flag)
    assert out.tolist() == [x > 2 and flag, flag or x > 3, 1 < x < 5 and (flag or x == 4)]


@triton.jit
def _asserting(out_ptr, N: tl.constexpr):
    tl.static_assert(N % 4 == 0, "N is a multiple of 4")
    tl.store(out_ptr + tl.arange(0, N), 1)


def test_a_static_assert_that_fails_is_said():
    out = torch.zeros(8)
    _asserting[(1,)](out, 8)
    assert out.tolist() == [1] * 8
    for _ in range(2):
        with pytest.raises(KernelError, match="N is a multiple of 4") as error:
            _asserting[(1,)](out, 2)
        assert error.value.code == Code.KERNEL_ASSERTION


@triton.jit
def _high(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, tl.umulhi(x, y).to(tl.int64))
    tl.store(out_ptr + N + i, tl.umulhi(y, x).to(tl.int64))


@pytest.mark.parametrize(
    ("x", "y"),
    [(torch.uint32, torch.uint32), (torch.uint32, torch.uint64), (torch.uint64, torch.uint64)],
)
def test_umulhi_promotes(x, y):
    a = torch.tensor([2**32 - 1, 2**31, 3, 0], dtype=torch.int64)
    b = torch.tensor([2**32 - 1, 2, 2**31, 7], dtype=torch.int64)
    out = torch.zeros(8, dtype=torch.int64)
    _high[(1,)](a.to(x), b.to(y), out, 4)
    bits = 32 if x == y == torch.uint32 else 64
    exact = [u * v >> bits for u, v in zip(a.tolist(), b.tolist(), strict=True)]
    assert out.tolist() == exact * 2


def test_umulhi_of_the_larger_type_is_not_cut():
    a = torch.tensor([3, 2**31, 5, 1], dtype=torch.int64).to(torch.uint32)
    b = torch.tensor([2**62, 2**62, 2**63 - 1, 5], dtype=torch.int64).to(torch.uint64)
    out = torch.zeros(8, dtype=torch.int64)
    _high[(1,)](a, b, out, 4)
    exact = [u * v >> 64 for u, v in zip(a.tolist(), b.tolist(), strict=True)]
    assert exact[1] == 2**29
    assert out.tolist() == exact * 2


@triton.jit
def _signed_zero(out_ptr, F: tl.constexpr):
    tl.store(out_ptr, 1.0 / (tl.load(out_ptr) * F))


@triton.jit
def _of_a_tuple(out_ptr, PAIR: tl.constexpr):
    tl.store(out_ptr, tl.load(out_ptr) * 0 + PAIR[0] / 2)


def test_constants_that_are_equal_and_not_the_same():
    out = torch.ones(1)
    launcher = Launcher(_signed_zero)
    launcher((1,), (out, 0.0), {})
    assert out.item() == float("inf")
    out.fill_(1)
    launcher((1,), (out, -0.0), {})
    assert out.item() == float("-inf")
    launcher = Launcher(_of_a_tuple)
    for pair in ((1, 2), (1.0, 2.0), (True, 2)):
        out.fill_(1)
        launcher((1,), (out, pair), {})
        assert out.item() == 0.5
    assert len(launcher._variants) == 3


@triton.jit
def _plus_one(x):
    return x + 1


@triton.jit
def _plus_two(x):
    return x + 2


@triton.jit
def _calls(out_ptr, FUNCTION: tl.constexpr):
    tl.store(out_ptr, FUNCTION(tl.load(out_ptr)))


def test_a_function_given_as_a_constant_is_known_by_its_source(tmp_path, monkeypatch):
    monkeypatch.setenv("AV_CACHE", str(tmp_path))
    for function in (_plus_one, _plus_two):
        # A function of the same name whose source was edited between two runs.
        monkeypatch.setattr(type(function), "__repr__", lambda _: "JITFunction(edited)")
        out = torch.zeros(1)
        Launcher(_calls)((1,), (out, function), {})
        assert out.item() == {_plus_one: 1, _plus_two: 2}[function]


WIDTH = 1
SETTINGS = SimpleNamespace(width=1)


@triton.jit
def _wide(x):
    return x + SETTINGS.width


def _adding(default: int) -> JITFunction:
    @triton.jit
    def add(x, k=default):
        return x + k

    return add


def _made(offset: int, dtype: tl.dtype) -> JITFunction:
    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr, WIDTH)
        tl.store(out_ptr + 1, _wide(0))
        tl.store(out_ptr + 2, tl.full([1], 300, tl.int32).to(dtype).to(tl.int32).sum() + offset)

    return kernel


def test_what_a_kernel_takes_from_its_surroundings_is_in_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("AV_CACHE", str(tmp_path))
    out = torch.zeros(3, dtype=torch.int32)

    def run(offset: int = 0, dtype: tl.dtype = tl.int32) -> list[int]:
        Launcher(_made(offset, dtype))((1,), (out,), {})
        return out.tolist()

    assert run() == [1, 1, 300]
    assert run(offset=1) == [1, 1, 301]
    assert run(dtype=tl.int8) == [1, 1, 44]
    monkeypatch.setitem(globals(), "WIDTH", 2)
    assert run() == [2, 1, 300]
    monkeypatch.setattr(SETTINGS, "width", 3)
    assert run() == [2, 3, 300]
    assert len(list(tmp_path.rglob("*.o"))) == 5
    assert run() == [2, 3, 300]
    assert len(list(tmp_path.rglob("*.o"))) == 5


def _calling(add: JITFunction) -> JITFunction:
    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr, add(tl.load(out_ptr)))

    return kernel


def test_the_default_of_a_callee_is_in_the_name(tmp_path, monkeypatch):
    monkeypatch.setenv("AV_CACHE", str(tmp_path))
    for default in (1, 2):
        out = torch.zeros(1)
        Launcher(_calling(_adding(default)))((1,), (out,), {})
        assert out.item() == default


class _Lazy:
    @property
    def width(self) -> int:
        raise ImportError("no such module")


LAZY = _Lazy()


@triton.jit
def _may_ask(out_ptr, ASK: tl.constexpr):
    tl.store(out_ptr, LAZY.width if ASK else WIDTH)


def test_what_cannot_be_read_is_not_in_the_name():
    found = surroundings(_may_ask.fn)
    assert "_may_ask WIDTH" in found
    assert "LAZY.width" not in found
