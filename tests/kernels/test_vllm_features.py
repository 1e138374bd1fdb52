"""The kernels behind sampling parameters, structured output, block tables and the drafters'
inputs.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import vllm.v1.worker.cpu.shm  # noqa: F401
from vllm.v1.sample.ops import topk_topp_triton as topk_topp
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch
from vllm.v1.worker.gpu import block_table, structured_outputs
from vllm.v1.worker.gpu.metrics.logits import get_num_nans
from vllm.v1.worker.gpu.sample import (
    bad_words,
    logit_bias,
    logprob,
    output,
    penalties,
    prompt_logprob,
    thinking_budget,
    trace_replay,
)
from vllm.v1.worker.gpu.spec_decode import rejection_sampler
from vllm.v1.worker.gpu.spec_decode.dflash import speculator as dflash
from vllm.v1.worker.gpu.spec_decode.dflash2 import speculator as dflash2
from vllm.v1.worker.gpu.spec_decode.ngram import speculator as ngram
from vllm.v1.worker.gpu.spec_decode.standalone_ar import speculator as standalone
from vllm.v1.worker.gpu.spec_decode.target_dependent_ar import speculator as dependent

VOCAB = 9000


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grammar_bitmask(compared, dtype):
    """A 2-D block: 32 bits of each word."""
    logits = torch.randn(5, VOCAB).to(dtype)
    bits = torch.randint(-(2**31), 2**31, (3, -(-VOCAB // 32))).int()
    before = logits.clone()
    structured_outputs._apply_grammar_bitmask_kernel[(3, triton.cdiv(VOCAB, 8192))](
        logits, logits.stride(0), integers(0, 5, 8), integers(0, 2, 4, 5), bits, bits.stride(0),
        VOCAB, MASK_STRIDE=4, BLOCK_SIZE=8192,
    )  # fmt: skip
    allowed = (bits[0].numpy()[:, None] >> np.arange(32)) & 1
    allowed = torch.from_numpy(allowed.reshape(-1)[:VOCAB].astype(bool))
    assert torch.equal(logits[0] == -math.inf, ~allowed)
    assert torch.equal(logits[0][allowed], before[0][allowed])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_penalties(compared, dtype):
    vocab = 8500
    penalties.apply_penalties(
        torch.randn(4, vocab).to(dtype),
        torch.tensor([0, 1, 1, 2]),
        torch.randint(0, vocab, (4,)),
        integers(0, 0, 1, 0),
        torch.tensor([1.0, 1.5, 0.7]),
        torch.tensor([0.0, 0.3, 0.0]),
        torch.tensor([0.0, 0.0, -0.4]),
        torch.randint(-(2**31), 2**31, (3, -(-vocab // 32))).int(),
        torch.randint(0, 3, (3, vocab)).int(),
    )


def test_counts_of_tokens(compared):
    tokens = torch.randint(0, 100, (3, 3000)).int()
    mask, counts = torch.ones(3, 4).int(), torch.ones(3, 100).int()
    penalties.bincount(
        torch.tensor([2, 0]),
        tokens,
        integers(5, 9, 1030),
        integers(2100, 9, 1030),
        mask,
        counts,
        2100,
    )
    assert torch.equal(counts[0].long(), torch.bincount(tokens[0, 5:2100], minlength=100))
    assert counts[1].sum() == 100  # another request's are left alone


@pytest.mark.parametrize("check_rows", [False, True])
def test_logit_bias_allowed_and_stop_tokens(compared, check_rows):
    logits = torch.randn(4, VOCAB)
    logits[3, :] = -math.inf
    logits[3, 7] = 1.0
    logit_bias.apply_logit_bias(
        logits, torch.tensor([0, 1, 2, 3]), torch.tensor([3, 3, 3, 1]),
        integers(3, 0, 0, 0), torch.randint(0, VOCAB, (4, 8)).int(),
        integers(0, 5, 0, 0), torch.arange(32).view(4, 8).int(), torch.randn(4, 8),
        integers(0, 0, 9, 9), integers(0, 0, 2, 1), torch.tensor([False, True, True, True]),
        torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8]]).int(), check_rows,
    )  # fmt: skip
    assert logits[0].isfinite().sum() <= 3
    assert logits[3, 7].item() == (1.0 if check_rows else -math.inf)


def test_bad_words(compared):
    logits = torch.zeros(3, 50)
    tokens = torch.zeros(2, 16).int()
    tokens[0, :6] = integers(1, 2, 3, 4, 5, 6)
    bad_words.apply_bad_words(
        logits, torch.tensor([0, 0, 1]), torch.tensor([[5, 6, 7, 9], [1, 0, 0, 0]]).int(),
        torch.tensor([[0, 3, 4], [0, 1, 1]]).int(), integers(2, 1), tokens,
        integers(2, 0), integers(6, 0), integers(6, 5, 8), integers(0, 1, 0), 2,
    )  # fmt: skip
    assert logits[0, 7].item() == logits[0, 9].item() == -math.inf
    assert logits[2, 1].item() == -math.inf


def test_numbers_of_nan(compared):
    logits = torch.randn(3, VOCAB)
    logits[1, ::100] = math.nan
    assert get_num_nans(logits).tolist() == [0, 90, 0]


@pytest.mark.parametrize("topk", [0, 3])
def test_custom_logprob_tokens(compared, topk):
    out, valid = torch.zeros(3, 9, dtype=torch.int64), torch.zeros(3, 9, dtype=torch.bool)
    indices = torch.randint(0, 99, (3, max(topk, 1))).int()
    logprob._fill_logprob_token_ids_kernel[(3,)](
        out, out.stride(0), valid, valid.stride(0), torch.tensor([5, 6, 7]), indices,
        indices.stride(0), torch.tensor([1, 0, 1]), integers(0, 4),
        torch.arange(16).view(2, 8).int(), 8,
        NUM_TOPK=topk, PADDED_COLS=8,
    )  # fmt: skip
    assert out[:, 0].tolist() == [5, 6, 7]
    assert out[0, 1:5].tolist() == [8, 9, 10, 11]


def test_prompt_logprob_tokens(compared):
    found = prompt_logprob.get_prompt_logprobs_token_ids(
        9,
        integers(0, 4, 9),
        torch.tensor([1, 0]),
        integers(2, 3),
        torch.arange(40).view(2, 20).int(),
    )
    assert found.tolist() == [24, 25, 26, 27, 3, 4, 5, 6, 7]


def test_trace_replay(compared):
    sampled = torch.tensor([1, 2, 3])
    trace_replay.apply_trace_tokens(
        sampled, torch.tensor([2, -1, 0]), torch.arange(30).view(3, 10).int(),
        integers(0, 5, 5), integers(3, 3, 6), integers(3, 3, 4),
    )  # fmt: skip
    assert sampled.tolist() == [22, 2, 3]


def test_compacted_sampling_mask(compared):
    logits = torch.randn(4, 2100)
    logits[:, ::3] = -math.inf
    tokens = torch.zeros(4, 16, dtype=torch.int32)
    packed = torch.zeros(4, 263, dtype=torch.uint8)
    counts = torch.zeros(4, dtype=torch.int32)
    output._compact_sampling_mask_kernel[(4,)](
        logits, logits.stride(0), logits.stride(1), integers(0, 2, 4), integers(2, 1), tokens,
        tokens.stride(0), packed, packed.stride(0), counts, 2100, 16, ROWS_PER_REQUEST=2,
        BLOCK_SIZE=1024,
    )  # fmt: skip
    assert counts.tolist() == [1400, 1400, 1400, 0]
    assert tokens[0, :4].tolist() == [1, 2, 4, 5]
    assert packed[0, 0].item() == 0b10110110


@pytest.mark.parametrize("scan", [0, 3, 30])
def test_thinking_budget(compared, scan):
    tokens = torch.randint(10, 20, (2, 64)).int()
    tokens[0, 5:7] = integers(1, 2)
    tokens[1, 40:43] = integers(1, 2, 3)
    total, budget = integers(20, 50), integers(4, -1)
    starts, ends, at = integers(-1, -1), integers(-1, -1), integers(scan, scan)
    logits = torch.zeros(3, 40)
    thinking_budget.apply_thinking_budget(
        logits, torch.tensor([0, 1]), torch.tensor([0, 0, 1]), budget, tokens, total,
        integers(11, 30, 31), integers(0, 1, 0), starts, ends, at, integers(1, 2), integers(3),
        integers(30, 31, 3),
    )  # fmt: skip
    if scan == 0:
        assert logits[0, 30].item() == 1.0e9


def test_flattened_samples(compared):
    flat, sampled = torch.zeros(7, dtype=torch.int64), torch.arange(12).view(3, 4)
    rejection_sampler._flatten_sampled_kernel[(3,)](
        flat, sampled, sampled.stride(0), integers(2, 0, 3), integers(0, 3, 4, 7)
    )
    assert flat.tolist() == [0, 1, 0, 0, 8, 9, 10]


# -- block tables


@pytest.mark.parametrize("ranks", [1, 2])
def test_block_tables_and_slots(compared, ranks):
    tables = [torch.arange(24).view(3, 8).int() + 1, torch.arange(12).view(3, 4).int() + 50]
    targets = [torch.full_like(t, 99) for t in tables]
    addresses = torch.tensor([t.data_ptr() for t in tables], dtype=torch.uint64)
    target_addresses = torch.tensor([t.data_ptr() for t in targets], dtype=torch.uint64)
    strides, counts = integers(8, 4), integers(3, 8, 0, 1, 4, 2).view(2, 3)
    mapping = torch.tensor([1, 0])
    block_table._gather_block_tables_kernel[(2, 3)](
        mapping, addresses, target_addresses, strides, counts, counts.stride(0), 2, BLOCK_SIZE=1024
    )
    assert targets[0][0].tolist() == tables[0][1].tolist()
    assert targets[0][1, :3].tolist() == tables[0][0, :3].tolist()
    assert targets[1][2].tolist() == [0, 0, 0, 0]
    slots = torch.zeros(2, 64, dtype=torch.int64)
    block_table._compute_slot_mappings_kernel[(2, 4)](
        64, torch.tensor([1, -1, 0]), integers(0, 10, 12, 20), torch.arange(64), addresses, strides,
        integers(16, 32), torch.tensor([True, False]), torch.tensor([True, False]), slots,
        slots.stride(0), 1 if ranks == 2 else 0, CP_SIZE=ranks, CP_INTERLEAVE=4, PAD_ID=-1,
        TRITON_BLOCK_SIZE=1024,
    )  # fmt: skip
    assert (slots[0, 10:12] == -1).all()
    assert (slots[:, 20:] == -1).all()
    if ranks == 1:
        assert slots[0, :10].tolist() == [9 * 16 + k for k in range(10)]


# -- drafters


def batch(requests: int, lengths: list[int]) -> SimpleNamespace:
    """The tensors that the drafters' input kernels read."""
    start = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32)
    return SimpleNamespace(
        start=start,
        ids=torch.randint(0, 500, (int(start[-1]),)).int(),
        positions=torch.cat([torch.arange(n) + 20 for n in lengths]),
        mapping=torch.arange(requests).flip(0),
        seq=torch.tensor([20 + n for n in lengths]).int(),
    )


def test_standalone_drafter_inputs(compared):
    b = batch(3, [4, 1, 2])
    ids, positions = torch.zeros(16).int(), torch.zeros(16, dtype=torch.int64)
    last, start, seq = torch.ones(5, dtype=torch.int64), torch.zeros(6).int(), torch.ones(5).int()
    standalone._prepare_prefill_inputs_kernel[(3,)](
        b.ids, b.positions, torch.tensor([7, 8, 9]), b.mapping, ids, positions, last, start, seq,
        b.start, b.seq, integers(2, 0, 1), 5, 23, BLOCK_SIZE=1024,
    )  # fmt: skip
    assert ids[2].item() == 9
    assert start.tolist() == [0, 5, 7, 10, 10, 10]
    assert positions.max() <= 22


@pytest.mark.parametrize("advance", [True, False])
def test_eagle_drafter_inputs(compared, advance):
    b = batch(2, [4, 1])
    step, ids, positions = torch.tensor(3), torch.zeros(8).int(), torch.zeros(8, dtype=torch.int64)
    last, start, seq = torch.ones(4, dtype=torch.int64), torch.zeros(5).int(), torch.ones(4).int()
    dependent._prepare_prefill_inputs_kernel[(2,)](
        last, step, ids, positions, start, seq, b.ids, b.positions, b.mapping,
        torch.tensor([70, 80]), integers(1, 2), integers(1, 0), integers(2, 0), b.start, b.seq, 4,
        BLOCK_SIZE=1024,
    )  # fmt: skip
    assert step.item() == 0
    assert last.tolist() == [1, 4, 0, 0]
    source = torch.arange(4)
    drafts = torch.arange(6).view(2, 3) + 300
    dependent._prepare_decode_inputs_kernel[(3,)](
        drafts, drafts.stride(0), b.seq, integers(2, 0), ids, positions, source, start, seq, 22, 4,
        BLOCK_SIZE=1024, ADVANCE_DRAFT_POSITIONS=advance,
    )  # fmt: skip
    assert ids[:2].tolist() == [300, 303]
    hidden, following = torch.randn(2, 70), torch.zeros(2, 70)
    for k in range(3):
        dependent._update_draft_inputs_kernel[(2,)](
            drafts, drafts.stride(0), following, following.stride(0), ids, positions, source, seq,
            torch.tensor([11, 12]), torch.tensor(k), hidden, hidden.stride(0), 70, 22, 3,
            BLOCK_SIZE=64, ADVANCE_DRAFT_POSITIONS=advance,
        )  # fmt: skip
    assert torch.equal(following, hidden)
    assert drafts.tolist() == [[11] * 3, [12] * 3]


@pytest.mark.parametrize("anchor", [True, False])
@pytest.mark.parametrize("ranks", [1, 2])
def test_dflash_inputs(compared, anchor, ranks):
    b = batch(2, [6, 3])
    queries, steps = (3, 3) if anchor else (4, 3)
    i32 = lambda n: torch.full((n,), 5, dtype=torch.int32)  # noqa: E731
    i64 = lambda n: torch.full((n,), 5, dtype=torch.int64)  # noqa: E731
    table = torch.tensor([[3, 4, 0, 6], [7, 0, 9, 1]]).int()
    ids, slots, sample = i32(32), i64(32), i64(12)
    dflash._prepare_dflash_inputs_kernel[(2, 1)](
        ids, i64(32), i32(5), i32(4), slots, i64(32), i64(32), sample, i64(12), i64(12),
        torch.zeros(4), i64(4), b.positions, b.start, b.mapping, torch.tensor([70, 80]),
        integers(1, 2), integers(1, 0), integers(2, 0), torch.tensor([0.5, 1.0]),
        torch.tensor([3, 4]), table, table.stride(0), 999, 16, queries, steps, 4, 32, 30, 0,
        SAMPLE_FROM_ANCHOR=anchor, PAD_SLOT_ID=-1, CP_SIZE=ranks, CP_INTERLEAVE=4, BLOCK_SIZE=64,
    )  # fmt: skip
    assert ids[0].item() == 80
    assert ids[1].item() == 999
    assert (slots[2 * queries :] == -1).all()


@pytest.mark.parametrize("probabilistic", [True, False])
def test_dflash2_walk(compared, probabilistic):
    steps, k = 3, 5
    scores = torch.randn(2 * steps * k, k)
    candidates = torch.randint(0, 90, (2 * steps, k))
    tokens, realized = torch.zeros(2 * steps, dtype=torch.int64), torch.zeros(2 * steps, k)
    request = torch.tensor([1] * steps + [-1] * steps)
    dflash2._selector_walk_kernel[(2,)](
        scores, candidates, torch.arange(2 * steps) + 9, request, torch.tensor([0.0, 0.8]),
        torch.tensor([5, 6]), tokens, realized, num_steps=steps, top_k=k, BLOCK_K=8,
        SAMPLE_PROBABILISTIC=probabilistic, USE_FP64=False,
    )  # fmt: skip
    assert all(t in candidates[row] for row, t in enumerate(tokens[:steps]))
    logits = torch.full((2, steps, 90), -math.inf)
    cached = torch.zeros(2, steps, k, dtype=torch.int64)
    dflash2._cache_draft_logits_kernel[(2 * steps,)](
        logits, cached, candidates, realized, request, logits.stride(0), logits.stride(1),
        num_steps=steps, top_k=k, BLOCK_K=8,
    )  # fmt: skip
    assert torch.equal(cached[1], candidates[:steps])


def test_ngram(compared):
    tokens = torch.randint(0, 3, (4, 256)).int()
    mapping, total, count = torch.tensor([2, 0, 3]), integers(250, 9, 200, 1), integers(1, 1, 0)
    scratch, drafts = torch.ones(3, 4, dtype=torch.int64), torch.zeros(3, 4, dtype=torch.int64)
    ngram._ngram_scan_kernel[(3, 4)](
        tokens, tokens.stride(0), mapping, total, count, scratch, scratch.stride(0), 256, MIN_N=1,
        MAX_N=3, MAX_N_PO2=4, BLOCK_L=64,
    )  # fmt: skip
    ngram._ngram_finalize_kernel[(3,)](
        tokens, tokens.stride(0), mapping, total, count, torch.tensor([90, 91, 92, 93]), scratch,
        scratch.stride(0), drafts, 256, 4, K=4, K_PO2=4, N_BLOCKS_PO2=4,
    )  # fmt: skip
    assert drafts[2].tolist() == [93] * 4
    assert (drafts[:2] < 93).all()


K, P = [1, 5, 50, 2100, 3, 1], [0.9, 0.5, 1.0, 0.99, 0.1, 1e-6]


@pytest.mark.parametrize(("k", "p"), [(K, None), (None, P), (K, P)])
@pytest.mark.parametrize("vocab", [2100, 49152])
def test_top_k_and_top_p(k, p, vocab):
    """Against torch: the interpreter cannot run this kernel (it calls ``.to`` on a loop's index).

    It writes where a running count of truths says: counted in the wrong type, out of bounds.
    """
    around = torch.full((8, vocab), 5.0)
    logits = around[1:-1]
    logits.copy_(torch.randn(6, vocab) * 2)
    logits[2, ::3] = -math.inf
    before = logits.clone()
    tops = None if k is None else torch.tensor(k), None if p is None else torch.tensor(p)
    expected = apply_top_k_top_p_pytorch(logits.clone(), *tops)
    report = topk_topp.apply_top_k_top_p_triton(logits, *tops)
    assert report.data_ptr() == logits.data_ptr()
    assert (around[0] == 5.0).all()
    assert (around[-1] == 5.0).all()
    kept, wanted = logits > -math.inf, expected > -math.inf
    both = kept & wanted
    assert torch.equal(logits[both], expected[both])
    if p is None:
        assert torch.equal(kept, wanted)
    else:
        # The search for the nucleus ends after 18 steps, near its edge: what differs weighs little.
        weight = before.softmax(-1)
        assert ((weight * kept).sum(-1) - (weight * wanted).sum(-1)).abs().max() < 1e-3
    assert not topk_topp._topk_topp_kernel.vllm_av_launcher.refused
