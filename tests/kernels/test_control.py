"""Statements: the order of memory accesses, branches, loops, early returns, inlined functions."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def _shift_up(x_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(x_ptr + 1 + i, x, mask=i < n)


@triton.jit
def _reverse(x_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + N - 1 - i)
    tl.store(x_ptr + i, x)


@triton.jit
def _store_then_load(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(x_ptr + i, i * 2)
    y = tl.load(x_ptr + (N - 1 - i))
    tl.store(x_ptr + (i ^ 1), y)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(x_ptr))


@triton.jit
def _two_names(a_ptr, b_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a_ptr + i)
    tl.store(b_ptr + i, x + 1)
    y = tl.load(a_ptr + i)
    tl.store(b_ptr + i, x + y * 10)


@triton.jit
def _in_place(x_ptr, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    tl.store(x_ptr + i, x / 3, mask=mask)


@triton.jit
def _save_overwrite_restore(x_ptr, ids_ptr, V: tl.constexpr, N: tl.constexpr):
    ids = tl.load(ids_ptr + tl.arange(0, N))
    saved = tl.load(x_ptr + ids)
    tl.debug_barrier()
    for i in range(0, V, 16):
        tl.store(x_ptr + i + tl.arange(0, 16), -float("inf"))
    tl.debug_barrier()
    tl.store(x_ptr + ids, saved)


@triton.jit
def _scalar_between(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x_ptr + i)
    tl.store(x_ptr + 3, 100)
    b = tl.load(x_ptr + i)
    c = tl.load(x_ptr + 3)
    tl.store(out_ptr + i, a + b * 1000 + c)


@pytest.mark.parametrize("n", [0, 1, 31, 63, 64])
def test_a_statement_reads_all_lanes_before_the_next_writes(both, n):
    x = torch.arange(80).int()
    both(_shift_up, (1,), x, n, 64)
    assert x[1 : n + 1].tolist() == list(range(n))


def test_reversing_in_place(both):
    x = torch.arange(128).int()
    both(_reverse, (1,), x, 128)
    assert x.tolist() == list(range(127, -1, -1))


def test_stores_are_seen_by_later_loads(both):
    both(_store_then_load, (1,), torch.zeros(64).int(), torch.zeros(64).int(), 64)


@pytest.mark.parametrize("shift", [0, 1, -1, 5])
def test_overlapping_tensors(both, shift):
    base = torch.arange(256).int()
    both(_two_names, (1,), base[16:], base[16 + shift :], 128)


@pytest.mark.parametrize("n", [1, 100, 129, 300])
def test_in_place_with_a_ragged_end(both, n):
    x = torch.randn(384)
    before = x.clone()
    both(_in_place, (3,), x, n, 128)
    assert torch.equal(x[n:], before[n:])
    assert torch.equal(x[:n], before[:n] / 3)


def test_saved_values_survive_the_overwrite(both):
    x = torch.randn(64)
    both(_save_overwrite_restore, (1,), x, torch.tensor([3, 60, 7, 9]), 64, 4)
    assert x.isinf().sum() == 60


def test_a_scalar_store_between_two_loads(both):
    both(_scalar_between, (1,), torch.arange(64).int(), torch.zeros(64).int(), 64)


@triton.jit
def _later(x_ptr, i, limit):
    if i < limit:
        return tl.load(x_ptr + i)
    return tl.load(x_ptr + limit) * 100


@triton.jit
def _three_ways(x, FLAG: tl.constexpr):
    if FLAG:
        return x + 1, 7
    if x > 5:
        x = x * 2
        if x > 20:
            return x, 1
    else:
        x = x - 1
    return x, 2


@triton.jit
def _early(x_ptr, out_ptr, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    x = tl.load(x_ptr + pid)
    if x < 0:
        tl.store(out_ptr + pid * 4, -1)
        return
    value, kind = _three_ways(x, False)
    tl.store(out_ptr + pid * 4, value)
    tl.store(out_ptr + pid * 4 + 1, kind)
    value, kind = _three_ways(x, True)
    tl.store(out_ptr + pid * 4 + 2, value + kind)
    tl.store(out_ptr + pid * 4 + 3, _later(x_ptr, pid, 3))


def test_early_returns(both):
    x = torch.tensor([3, -4, 8, 12, 100, 5, 0]).int()
    out = torch.zeros(28, dtype=torch.int32)
    both(_early, (7,), x, out, 6)
    assert out[4].item() == -1
    assert out[12:14].tolist() == [24, 1]
    assert out[24:].tolist() == [0, 0, 0, 0]


@triton.jit
def _loops(x_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    total = 0
    best = float("-inf")
    block = tl.zeros([N], tl.float32)
    a = i
    b = i * 10
    for k in range(0, n, N):
        x = tl.load(x_ptr + k + i, mask=k + i < n, other=-1.0)
        best = tl.maximum(best, tl.max(x, axis=0))
        block += x
        a, b = b, a + 1
        if k > N:
            total += k
        else:
            total -= 1
    for _ in tl.static_range(3):
        block = block * 2
    down = 0
    for k in range(5, -1, -2):
        down = down * 10 + k
    left = n
    while left > 3 and total < 10**6:
        left = left // 2
        total += left
    tl.store(out_ptr + i, block)
    tl.store(out_ptr + N + i, a - b)
    tl.store(out_ptr + 2 * N, best)
    tl.store(out_ptr + 2 * N + 1, total)
    tl.store(out_ptr + 2 * N + 2, down)


@pytest.mark.parametrize("n", [0, 1, 16, 100, 128])
def test_loops_carry_scalars_and_blocks(both, n):
    out = torch.zeros(128)
    both(_loops, (1,), torch.randn(128), out, n, 16)
    assert out[34].item() == 531


@triton.jit
def _merged_blocks(x_ptr, y_ptr, out_ptr, flag, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    if flag == 0:
        z = x
        p = x_ptr
    elif flag == 1:
        z = tl.exp(x) + tl.load(y_ptr + i)
        p = y_ptr
    else:
        z = x * 0 + flag
        p = x_ptr + 1
    first = tl.load(p) if flag < 2 else 9.0
    tl.store(out_ptr + i, z + first)


@pytest.mark.parametrize("flag", [0, 1, 2])
def test_branches_merge_blocks_and_pointers(both, flag):
    both(_merged_blocks, (1,), torch.randn(64), torch.randn(64), torch.zeros(64), flag, 64)


@triton.jit
def _indirect(table_ptr, out_ptr, N: tl.constexpr):
    address = tl.load(table_ptr + tl.program_id(0))
    p = tl.cast(address, tl.pointer_type(tl.int32))
    p = tl.multiple_of(p, 16)
    p += 2
    tl.store(out_ptr + tl.program_id(0) * N + tl.arange(0, N), tl.load(p + tl.arange(0, N)))


def test_pointers_from_memory(both):
    a, b = torch.arange(16).int(), torch.arange(100, 116).int()
    table = torch.tensor([a.data_ptr(), b.data_ptr()], dtype=torch.uint64)
    out = torch.zeros(16, dtype=torch.int32)
    both(_indirect, (2,), table, out, 8)
    assert out.tolist() == [*range(2, 10), *range(102, 110)]


@triton.jit
def _grid(out_ptr, n0, n1):
    a, b, c = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (a * n1 + b) * tl.num_programs(2) + c
    tl.store(out_ptr + at, a * 100 + b * 10 + c + (tl.num_programs(0) == n0))


def test_grid_of_three_dimensions_and_of_a_function(both):
    out = torch.zeros(24, dtype=torch.int32)
    both(_grid, (2, 3, 4), out, 2, 3)
    assert out[-1].item() == 124
    both(_grid, lambda meta: (meta["n0"], meta["n1"]), out, 2, 3)


@triton.jit
def _masked(x_ptr, out_ptr, n, valid, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    mask = (i < n) & (valid != 0)
    x = tl.load(x_ptr + i, mask=mask, other=-7)
    y = tl.load(x_ptr + i, mask=mask & (i % 3 == 0))
    z = tl.load(x_ptr, mask=valid > 1, other=50)
    tl.store(out_ptr + i, x + y + z, mask=i <= n)


@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 255, 256])
@pytest.mark.parametrize("valid", [0, 1, 2])
def test_masks_of_every_length(both, n, valid):
    out = torch.full((300,), 3, dtype=torch.int32)
    both(_masked, (2,), torch.arange(1, 301).int(), out, n, valid, 128)
    assert (out[n + 1 :] == 3).all()


@triton.jit
def _arguments(out_ptr, i, big, flag, x, missing, C: tl.constexpr, D: tl.constexpr = 5):
    if missing is None:
        tl.store(out_ptr, i + big + C + D)
    else:
        tl.store(out_ptr, tl.load(missing))
    if flag:
        tl.store(out_ptr + 1, x * 4)


@pytest.mark.parametrize("big", [1, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 10, -(2**63)])
@pytest.mark.parametrize("flag", [True, False])
def test_arguments_of_every_kind(both, big, flag):
    out = torch.zeros(2, dtype=torch.int64)
    both(_arguments, (1,), out, 3, big, flag, 0.5, None, C=1, num_warps=4)
    both(_arguments, (1,), out, i=0, big=1, flag=flag, x=2.0, missing=out[1:], C=1, D=0)


@triton.jit
def _atomics(counts_ptr, bits_ptr, tokens_ptr, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    token = tl.load(tokens_ptr + i, mask=i < n, other=0)
    tl.atomic_add(counts_ptr + token, 1, mask=i < n)
    tl.atomic_or(bits_ptr + token // 32, tl.full((N,), 1, tl.int32) << (token % 32), mask=i < n)


def test_atomics_on_one_place(both):
    tokens = torch.randint(0, 20, (100,))
    counts, bits = torch.zeros(64).int(), torch.zeros(2).int()
    both(_atomics, (2,), counts, bits, tokens, 100, 64)
    assert counts.sum() == 100
    assert torch.equal(counts[:20].long(), torch.bincount(tokens, minlength=20))


@triton.jit
def _kept_in_a_branch(x_ptr, out_ptr, flag, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    costly = tl.exp(tl.exp(x) / 7) / 3
    if flag:
        tl.store(out_ptr + i, costly)
    tl.store(out_ptr + N + i, costly + 1)


@pytest.mark.parametrize("flag", [0, 1])
def test_what_a_branch_computes_is_not_taken_for_granted(both, flag):
    out = torch.zeros(128)
    both(_kept_in_a_branch, (1,), torch.randn(64), out, flag, 64)


@triton.jit
def _doubled(v, N: tl.constexpr):
    pairs = tl.interleave(v, v + 1)
    return tl.sum(pairs.reshape(N, 2), axis=1)


@triton.jit
def _lanes_move_each_round(out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = i
    for _ in range(n):
        x = _doubled(x, N)
    tl.store(out_ptr + i, x)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_carried_block_whose_lanes_move(both, n):
    out = torch.zeros(32, dtype=torch.int32)
    both(_lanes_move_each_round, (1,), out, n, 32)


@triton.jit
def _tested_only(p_ptr, out_ptr):
    x = 3
    n = 0
    while x > 0:
        x = tl.load(p_ptr + n)
        n += 1
    tl.store(out_ptr, n)


def test_a_name_that_only_the_test_of_a_loop_reads(refusal):
    out = torch.zeros(1, dtype=torch.int32)
    assert "`x`, whose type changes" in refusal(_tested_only, torch.tensor([5, 4, 0]), out)
    _tested_only[(1,)](torch.tensor([5, 4, 0]), out)
    assert out.item() == 3
    _tested_only[(1,)](torch.tensor([5, 4, 3, 0], dtype=torch.int32), out)
    assert out.item() == 4


def test_a_loop_does_not_carry_an_unsigned_value_as_a_signed_one(refusal):
    out = torch.zeros(1, dtype=torch.int32)
    unsigned = torch.tensor([5, 2**31, 0]).to(torch.uint32)
    assert "`x`, whose type changes" in refusal(_tested_only, unsigned, out)
