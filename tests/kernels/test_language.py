"""Triton's types and operators, compiled and interpreted side by side."""

import itertools
import math

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

N = 64
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint32]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def numbers(dtype: torch.dtype, seed: int = 0, count: int = N) -> torch.Tensor:
    """Random values with the extremes among them."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        x = torch.randn(count, generator=generator, dtype=torch.float64) * 3
        x[:8] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5])
        return x.to(dtype)
    info = torch.iinfo(dtype)
    x = torch.randint(info.min // 2, info.max // 2, (count,), generator=generator)
    x[:6] = torch.tensor([0, 1, info.max, info.min, 2, 7])
    return x.to(dtype)


@triton.jit
def _arithmetic(x_ptr, y_ptr, out_ptr, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    if OP == 0:
        z = x + y
    elif OP == 1:
        z = x - y
    elif OP == 2:
        z = x * y
    elif OP == 3:
        z = tl.maximum(x, y)
    elif OP == 4:
        z = tl.minimum(x, y)
    elif OP == 5:
        z = (x < y) | (x == y)
    elif OP == 6:
        z = (x > y) ^ (x != y)
    else:
        z = tl.where(x >= y, x, y)
    tl.store(out_ptr + i, z)


@pytest.mark.parametrize("op", range(8))
@pytest.mark.parametrize(
    ("x", "y"), [*itertools.product(INTEGERS, INTEGERS), (torch.float32, torch.float64)]
)
def test_operators_promote_and_wrap_like_triton(both, x, y, op):
    a, b = numbers(x), numbers(y, 1)
    out = torch.zeros(N, dtype=torch.float64 if x.is_floating_point else torch.int64)
    both(_arithmetic, (1,), a, b, out, op, N)


@pytest.mark.parametrize("op", range(8))
@pytest.mark.parametrize(
    ("x", "y"),
    [(torch.float32, torch.float32), (torch.float32, torch.int32), (torch.float64, torch.int64)],
)
def test_float_operators(both, x, y, op):
    both(_arithmetic, (1,), numbers(x), numbers(y, 1), torch.zeros(N, dtype=torch.float64), op, N)


@triton.jit
def _pythons_extremes(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    for i in range(min(N, max(4, 7))):
        x = tl.load(x_ptr + i)
        y = tl.load(y_ptr + i)
        tl.store(out_ptr + i, max(0, x - 1) + min(x, y, 100))


@pytest.mark.parametrize("x", [torch.int32, torch.int64])
@pytest.mark.parametrize("y", [torch.int32, torch.int64])
def test_min_and_max_of_python_take_scalars(both, x, y):
    a = torch.tensor([-3, 0, 1, 2, 50, 400, 7, 1], dtype=x)
    b = torch.tensor([5, -6, 300, 1, 60, 500, 7, 1], dtype=y)
    out = torch.full((8,), -9, dtype=torch.int64)
    both(_pythons_extremes, (1,), a, b, out, N)
    assert out.tolist() == [-3, -6, 1, 2, 99, 499, 13, -9]


@triton.jit
def _weak(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x * 3 + 1)
    tl.store(out_ptr + N + i, x - 32767)
    tl.store(out_ptr + 2 * N + i, (x + 1.5).to(tl.int64))
    tl.store(out_ptr + 3 * N + i, (x > 0) + 1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16])
def test_literals_are_weak(both, dtype):
    info = torch.iinfo(dtype)
    x = torch.arange(-N // 2, N // 2).to(dtype)
    x[0] = info.min
    out = torch.zeros(4 * N, dtype=torch.int64)
    both(_weak, (1,), x, out, N)
    assert out[N].item() == info.min - 32767 + 2**info.bits  # in the tensor's own type


@triton.jit
def _division(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, x // y)
    tl.store(out_ptr + N + i, x % y)
    tl.store(out_ptr + 2 * N + i, x // 7)
    tl.store(out_ptr + 3 * N + i, x % 7)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_division_truncates_toward_zero(both, dtype):
    x = torch.arange(-N // 2, N // 2).to(dtype)
    y = torch.tensor([3, -3, 5, -7] * (N // 4), dtype=dtype)
    out = torch.zeros(4 * N, dtype=dtype)
    both(_division, (1,), x, y, out, N)
    assert out[0].item() == -10  # -32 // 3
    assert out[N].item() == -2  # -32 % 3


def test_division_by_zero_gives_zero_and_does_not_trap():
    x, y = torch.tensor([5, -5, 0, -(2**31)], dtype=torch.int32), torch.tensor([0, 0, 0, -1])
    out = torch.ones(16, dtype=torch.int32)
    _division[(1,)](x, y.int(), out, 4)
    assert out[:3].tolist() == [0, 0, 0]
    assert out[3].item() == -(2**31)
    assert out[4:8].tolist() == [0, 0, 0, 0]


@triton.jit
def _shifts(x_ptr, s_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, s = tl.load(x_ptr + i), tl.load(s_ptr + i)
    tl.store(out_ptr + i, x << s)
    tl.store(out_ptr + N + i, x >> s)
    tl.store(out_ptr + 2 * N + i, (x << 13) | (x >> 19))
    tl.store(out_ptr + 3 * N + i, ~x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.int64])
def test_shifts_follow_the_sign(both, dtype):
    x = numbers(dtype)
    s = (torch.arange(N) % 31).to(dtype)
    both(_shifts, (1,), x, s, torch.zeros(4 * N, dtype=dtype), N)


def test_shifts_by_the_width_or_more():
    x = torch.tensor([-1, 5, 1, -8], dtype=torch.int32)
    out = torch.zeros(16, dtype=torch.int32)
    _shifts[(1,)](x, torch.tensor([32, 40, 33, 64], dtype=torch.int32), out, 4)
    assert out[:4].tolist() == [0, 0, 0, 0]
    assert out[4:8].tolist() == [-1, 0, 0, -1]


@triton.jit
def _casts(x_ptr, out_ptr, DTYPE: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(x_ptr + i).to(DTYPE))


@pytest.mark.parametrize("source", [*INTEGERS, torch.float32, torch.float64, torch.bool])
@pytest.mark.parametrize(
    ("target", "stored"),
    [
        (tl.int1, torch.bool),
        (tl.int8, torch.int8),
        (tl.int32, torch.int32),
        (tl.uint32, torch.uint32),
        (tl.int64, torch.int64),
        (tl.float32, torch.float32),
        (tl.float64, torch.float64),
    ],
)
def test_casts(both, source, target, stored):
    x = (torch.arange(N) % 3 == 0) if source == torch.bool else numbers(source)
    if source.is_floating_point and not stored.is_floating_point:
        x = torch.arange(N, dtype=source) * 1.75  # out of range is not defined
    both(_casts, (1,), x, torch.zeros(N, dtype=stored), target, N)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_round_to_nearest_even_like_torch(dtype):
    x = numbers(torch.float32, count=4096)
    out = torch.zeros(4096, dtype=dtype)
    kind = tl.float16 if dtype == torch.float16 else tl.bfloat16
    _casts[(1,)](x, out, kind, 4096)
    assert torch.equal(out.view(torch.int16)[:4], x.to(dtype).view(torch.int16)[:4])
    assert out.isnan().tolist() == x.isnan().tolist()
    assert torch.equal(out[~x.isnan()], x.to(dtype)[~x.isnan()])


@triton.jit
def _half_constants(x_ptr, out_ptr, DTYPE: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.full([N], 0.1, DTYPE).to(tl.float32))
    tl.store(out_ptr + N + i, (tl.load(x_ptr + i) + 0.1).to(tl.float32))
    tl.store(out_ptr + 2 * N + i, tl.full([N], 1e6, DTYPE).to(tl.float32))
    tl.store(out_ptr + 3 * N + i, tl.full([N], 1.01171875, DTYPE).to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_constants_of_half_types_are_rounded(dtype):
    x, out = numbers(dtype)[8:24], torch.zeros(64)
    kind = tl.float16 if dtype == torch.float16 else tl.bfloat16
    _half_constants[(1,)](x, out, kind, 16)
    constants = torch.tensor([0.1, 1e6, 1.01171875]).to(dtype)
    assert out.view(4, 16)[[0, 2, 3], 0].tolist() == constants.tolist()
    assert torch.equal(out[16:32], (x + constants[0]).float())


@triton.jit
def _limits(x_ptr, out_ptr, base, limit, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i.to(tl.int64)
    x = tl.load(x_ptr + i, mask=at + base <= limit, other=-1)
    tl.store(out_ptr + i, x)
    tl.store(out_ptr + N + i, tl.load(x_ptr + i, mask=at <= limit, other=-1))
    tl.store(out_ptr + 2 * N + i, tl.load(x_ptr + i, mask=at - base < limit, other=-1))


@pytest.mark.parametrize("limit", [2**63 - 1, 2**63 - 2, -(2**63), 2**40, 70, -1])
@pytest.mark.parametrize("base", [0, 2**62, -(2**62), -(2**40), 3])
def test_limits_at_the_end_of_64_bits(both, base, limit):
    x = torch.randint(0, 1000, (128,)).int()
    both(_limits, (1,), x, torch.zeros(384, dtype=torch.int32), base, limit, 128)


@triton.jit
def _half_sum(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(x_ptr + i) * tl.load(y_ptr + i) + 1.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_arithmetic_rounds_each_result(dtype):
    x, y = numbers(dtype, 2)[8:], numbers(dtype, 3)[8:]
    x, y = torch.cat([x, x[:8]]), torch.cat([y, y[:8]])
    out = torch.zeros(N, dtype=dtype)
    _half_sum[(1,)](x, y, out, N)
    assert torch.equal(out, x * y + 1.0)


@triton.jit
def _reductions(x_ptr, value_ptr, index_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    value, index = tl.max(x, axis=0, return_indices=True)
    tl.store(value_ptr, value)
    tl.store(index_ptr, index)
    tl.store(value_ptr + 1, tl.max(x, axis=0))
    tl.store(value_ptr + 2, tl.min(x, axis=0))
    tl.store(value_ptr + 3, tl.sum(x))
    tl.store(index_ptr + 1, tl.argmax(x, axis=0))
    tl.store(index_ptr + 2, tl.argmin(x, axis=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("n", [1, 2, 32, 128, 4096])
def test_reductions(both, dtype, n):
    x = torch.randint(-50, 50, (n,)).to(dtype)  # many ties: the leftmost wins
    value, index = torch.zeros(4, dtype=dtype), torch.zeros(3, dtype=torch.int32)
    both(_reductions, (1,), x, value, index, n)
    assert index[0].item() == x.argmax().item() or x[index[0]] == x.max()
    assert not (x[: index[0]] == x.max()).any()


@pytest.mark.parametrize("at", [0, 1, 77, 127])
def test_reductions_ignore_nan(both, at):
    x = torch.randn(128)
    x[at] = math.nan
    x[5] = -math.inf
    value, index = torch.zeros(4), torch.zeros(3, dtype=torch.int32)
    both(_reductions, (1,), x, value, index, 128)
    assert value[0].item() == np.nanmax(x.numpy())


@pytest.mark.parametrize("fill", [-math.inf, math.inf, 0.0, -0.0])
def test_reductions_of_equals_take_the_first(both, fill):
    value, index = torch.zeros(4), torch.ones(3, dtype=torch.int32)
    both(_reductions, (1,), torch.full((256,), fill), value, index, 256)
    assert index.tolist() == [0, 0, 0]


def test_a_block_of_nan_gives_nan_and_index_0():
    value, index = torch.zeros(4), torch.ones(3, dtype=torch.int32)
    _reductions[(1,)](torch.full((64,), math.nan), value, index, 64)
    assert value.isnan().all()
    assert index.tolist() == [0, 0, 0]


@triton.jit
def _nan_and_infinity(x_ptr, value_ptr, index_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    value, index = tl.max(x, axis=0, return_indices=True)
    tl.store(value_ptr, value)
    tl.store(index_ptr, index)


def test_nan_beside_minus_infinity(both):
    x = torch.tensor([math.nan, -math.inf, -math.inf, math.nan])
    both(_nan_and_infinity, (1,), x, torch.zeros(1), torch.ones(1, dtype=torch.int32))


@triton.jit
def _small_sums(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.sum(x))
    tl.store(out_ptr + 1, tl.sum((x > 0).to(tl.int1)))
    tl.store(out_ptr + 2, tl.sum(tl.cumsum(x, axis=0)))
    tl.store(out_ptr + 3, tl.sum(tl.cumsum(x > 0, axis=0)))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_sums_of_small_integers_widen(both, dtype):
    x = torch.full((256,), 100, dtype=dtype)
    out = torch.zeros(4, dtype=torch.int64)
    both(_small_sums, (1,), x, out, 256)
    assert out.tolist() == [25600, 256, 100 * 256 * 257 // 2, 256 * 257 // 2]


def test_a_float_sum_is_the_same_every_time():
    x = torch.randn(8192) * 1e6
    results = set()
    for _ in range(5):
        value = torch.zeros(4)
        _reductions[(1,)](x, value, torch.zeros(3, dtype=torch.int32), 8192)
        results.add(value[3].item())
    assert len(results) == 1


@triton.jit
def _random(out_ptr, seed, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.rand(seed, i))
    tl.store(out_ptr + N + i, tl.rand(seed, i.to(tl.int64) + 5000000000))


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**40 + 3, -(2**63)])
def test_philox_is_bit_exact(both, seed):
    out = torch.zeros(2 * N)
    both(_random, (1,), out, seed, N)
    assert out.min() >= 0
    assert out.max() < 1
    assert out.unique().numel() > N


@triton.jit
def _interleaved(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    both = tl.interleave(x, x * 10)
    tl.store(out_ptr + tl.arange(0, 2 * N), both)


@triton.jit
def _unpacked(x_ptr, out_ptr, rows_ptr, N: tl.constexpr):
    packed = tl.load(x_ptr + tl.arange(0, N))
    bits = (packed[:, None] >> tl.arange(0, 32)[None, :]) & 1
    tl.store(out_ptr + tl.arange(0, N * 32), bits.reshape(N * 32))
    tl.store(rows_ptr + tl.arange(0, N), tl.sum(bits, axis=1) * 100 + tl.sum(bits, axis=-1))
    tl.store(rows_ptr + N + tl.arange(0, 32), tl.sum(bits, axis=0))


def test_blocks_of_two_dimensions(both):
    x = torch.randint(-(2**31), 2**31, (8,)).int()
    out, rows = torch.zeros(256, dtype=torch.int32), torch.zeros(40, dtype=torch.int32)
    both(_unpacked, (1,), x, out, rows, 8)
    bits = out.view(8, 32)
    assert torch.equal(torch.cat([bits.sum(1) * 101, bits.sum(0)]).int(), rows)


def test_interleave(both):
    out = torch.zeros(16, dtype=torch.int32)
    both(_interleaved, (1,), torch.arange(8).int(), out, 8)
    assert out.tolist()[:4] == [0, 0, 1, 10]


@triton.jit
def _functions(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.exp(x))
    tl.store(out_ptr + N + i, tl.log(x))
    tl.store(out_ptr + 2 * N + i, tl.sigmoid(x))
    tl.store(out_ptr + 3 * N + i, tl.abs(x) + tl.sqrt(tl.maximum(x, 0.0)) + tl.floor(x))
    tl.store(out_ptr + 4 * N + i, tl.exp2(x) + tl.log2(tl.abs(x) + 1.0))
    tl.store(out_ptr + 5 * N + i, tl.exp(x.to(tl.float64)))


def test_elementary_functions(both):
    both(_functions, (1,), numbers(torch.float32), torch.zeros(6 * N), N)
