"""Blocks of several dimensions: addresses, masks and operators over blocks that broadcast."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def _copy(x_ptr, out_ptr, stride, R: tl.constexpr, C: tl.constexpr):
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * stride + c[None, :])
    tl.store(out_ptr + r[:, None] * C + c[None, :], x)


@triton.jit
def _transpose(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    r = tl.arange(0, R)[:, None]
    c = tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + (r * C + c))
    tl.store(out_ptr + (c * R + r), x)
    tl.store(out_ptr + R * C + (r + c * R), x - (r * C - c))


@triton.jit
def _masked(x_ptr, out_ptr, rows, columns, R: tl.constexpr, C: tl.constexpr):
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    mask = (r < rows)[:, None] & (c < columns)[None, :]
    at = r[:, None] * C + c[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=-1)
    tl.store(out_ptr + at, x, mask=(r[:, None] <= rows) & (c[None, :] < columns + 2))
    tl.store(out_ptr + R * C + at, tl.where(r[:, None] < c[None, :], x, 7), mask=at < rows * C)
    tl.store(out_ptr + 2 * R * C + at, x, mask=r[:, None] < rows)
    tl.store(out_ptr + 3 * R * C + at, x, mask=c[None, :] < columns)


@pytest.mark.parametrize(("rows", "columns"), [(2, 128), (16, 4), (1, 64), (64, 1), (8, 8)])
def test_two_dimensional_addresses(both, rows, columns):
    x = torch.randn(rows, columns + 3)
    out = torch.zeros(rows, columns)
    both(_copy, (1,), x, out, x.stride(0), rows, columns)
    assert torch.equal(out, x[:, :columns])


@pytest.mark.parametrize(("rows", "columns"), [(2, 128), (16, 4), (1, 64), (64, 1)])
def test_an_index_of_columns_then_rows(both, rows, columns):
    x = torch.randint(0, 1000, (rows, columns)).int()
    out = torch.zeros(2, columns, rows, dtype=torch.int32)
    both(_transpose, (1,), x, out, rows, columns)
    assert torch.equal(out[0], x.T)


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (3, 20), (8, 64), (5, 1), (1, 63)])
def test_two_dimensional_masks(both, rows, columns):
    x = torch.randint(0, 1000, (8, 64)).int()
    out = torch.full((4, 8, 64), -5, dtype=torch.int32)
    both(_masked, (1,), x, out, rows, columns, 8, 64)
    assert torch.equal(out[0, :rows, :columns], x[:rows, :columns])
    assert (out[0, rows + 1 :] == -5).all()


@triton.jit
def _one_and_many(x_ptr, out_ptr, N: tl.constexpr):
    one = tl.arange(0, 1)
    i = tl.arange(0, N)
    tl.store(out_ptr + (one + i), tl.load(x_ptr + (i + one)))
    tl.store(out_ptr + N + (i - one), i * (one + 2))
    tl.store(out_ptr + 2 * N + i, tl.load(x_ptr + one) + (one + i), mask=(one + i) < N - 1)
    tl.store(out_ptr + 3 * N + i + one, tl.full((1,), 5, tl.int32) + i, mask=one < 1)


def test_one_lane_beside_many(both):
    x = torch.randint(0, 1000, (64,)).int()
    out = torch.zeros(256, dtype=torch.int32)
    both(_one_and_many, (1,), x, out, 64)
    assert torch.equal(out[:64], x)
    assert torch.equal(out[64:128], 2 * torch.arange(64).int())


@triton.jit
def _three(x_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    a = tl.arange(0, A)[:, None, None]
    b = tl.arange(0, B)[None, :, None]
    c = tl.arange(0, C)[None, None, :]
    at = a * (B * C) + b * C + c
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + (c * (A * B) + b * A + a), x)
    tl.store(out_ptr + A * B * C + at.reshape(A * B * C), tl.reshape(x, (A * B * C,)))
    tl.store(out_ptr + 2 * A * B * C + at, tl.broadcast_to(b, (A, B, C)) * 10 + c)


def test_three_dimensions(both):
    x = torch.randint(0, 1000, (4, 2, 8)).int()
    out = torch.zeros(192, dtype=torch.int32)
    both(_three, (1,), x, out, 4, 2, 8)
    assert torch.equal(out[:64].view(8, 2, 4), x.permute(2, 1, 0))
    assert torch.equal(out[64:128], x.flatten())


@triton.jit
def _wraps(out_ptr, big, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, (i * 1000003 * 1009).to(tl.int64))
    tl.store(out_ptr + N + i, ((i + big) * 1009).to(tl.int64))
    tl.store(out_ptr + 2 * N + i, (i.to(tl.int64) + big) * 1009)


def test_indices_that_wrap_in_32_bits(both):
    out = torch.zeros(192, dtype=torch.int64)
    both(_wraps, (1,), out, 123456789, 64)
    assert (out[:128].abs() < 2**31).all()
    assert out[128].item() == 123456789 * 1009


@triton.jit
def _grown(out_ptr, N: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, N), tl.broadcast_to(tl.arange(0, 2), (N,)))


def test_two_lanes_do_not_broadcast_to_eight(refusal):
    assert "a block of [2] as one of [8]" in refusal(_grown, torch.zeros(8), 8)
