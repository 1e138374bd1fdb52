"""vLLM's own kernels, launched by vLLM's own functions: every launch compiled and interpreted.

The ``compared`` fixture fails a test in which any launch differs, was not compiled, or did not
happen.
"""

import math

import numpy as np
import pytest
import torch
import vllm.v1.worker.cpu.shm  # noqa: F401  (before the kernels: replaces CUDA's stream functions)
from vllm.v1.worker.gpu import input_batch
from vllm.v1.worker.gpu.sample import gumbel, logprob, min_p
from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils
from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import OnlineAcceptanceEstimator
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import gather_draft_sampled

TEMPERATURES = {"greedy": [0.0] * 6, "one": [1.0] * 6, "mixed": [0.0, 1.0, 0.3, 0.01, 2.0, 0.7]}


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def awkward(logits: torch.Tensor) -> torch.Tensor:
    """-inf where a grammar or top-k would put it, a lone survivor, equal maxima."""
    logits[0, 1:] = -math.inf
    logits[1, ::3] = -math.inf
    logits[2, 5] = logits[2, 9] = logits[2].max() + 1
    return logits


# -- sampling


@pytest.mark.parametrize("name", TEMPERATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [7, 1024, 5000])
def test_temperature(compared, name, dtype, vocab):
    logits = torch.randn(9, vocab).to(dtype)
    gumbel.apply_temperature(
        logits, torch.tensor([0, 1, 2, 3, 4, 5, 0, 1, 2]), torch.tensor(TEMPERATURES[name])
    )


@pytest.mark.parametrize("name", TEMPERATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cache", [None, "shared", "per token"])
@pytest.mark.parametrize("drafting", [True, False])
def test_gumbel_sample(compared, name, dtype, cache, drafting):
    vocab = 2500
    logits = awkward(torch.randn(6, vocab)).to(dtype)
    column = torch.tensor(1) if cache == "shared" else torch.tensor([0, 1, 2, 0, 1, 2])
    sampled = gumbel.gumbel_sample(
        logits,
        torch.tensor([3, 1, -1, 0, 5, 4]),
        torch.tensor(TEMPERATURES[name]),
        torch.tensor([7, -3, 2**40, 0, 5, 1]),
        torch.arange(6) * 1000,
        apply_temperature=True,
        is_drafting=drafting,
        logits_cache=None if cache is None else torch.zeros(6, 3, vocab, dtype=dtype),
        logits_cache_col=None if cache is None else column,
    )
    assert sampled[0].item() == 0
    if name == "greedy":
        assert torch.equal(sampled[1:], logits[1:].float().argmax(-1))


def test_gumbel_sample_in_float64(compared):
    gumbel.gumbel_sample(
        torch.randn(4, 3000),
        torch.arange(4),
        torch.tensor([1.0, 0.5, 0.0, 2.0]),
        torch.arange(4),
        torch.arange(4),
        apply_temperature=True,
        is_drafting=False,
        use_fp64=True,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_min_p(compared, dtype):
    logits = awkward(torch.randn(5, 3000)).to(dtype)
    values = torch.tensor([0.0, 0.1, 0.5, 1.0, 0.01])
    min_p.apply_min_p(logits, torch.tensor([0, 1, 2, 3, 4]), values)
    assert logits[3].isfinite().sum() >= 1


@pytest.mark.parametrize("vocab", [33, 5000])
def test_log_probabilities_and_ranks(compared, vocab):
    logits = torch.randn(5, vocab)
    sampled = logits.argmax(-1)
    result = logprob.compute_topk_scores(logits, 4, sampled)
    assert result.selected_token_ranks.tolist() == [1] * 5
    assert torch.allclose(
        result.logprobs[:, 0], logits.log_softmax(-1).gather(1, sampled[:, None])[:, 0], atol=1e-5
    )


# -- rejection sampling


def rejection(
    requests: int,
    steps: int,
    vocab: int,
    temperature: list[float],
    draft: torch.dtype | None,
    lengths: list[int] | None = None,
    **options: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ragged batches: each request verifies as many drafts as ``lengths`` says."""
    lengths = lengths or [steps] * requests
    cu = torch.tensor(np.cumsum([0, *(n + 1 for n in lengths)]), dtype=torch.int32)
    rows = int(cu[-1])
    position = torch.cat([torch.arange(n + 1) for n in lengths]).int()
    request = torch.repeat_interleave(torch.arange(requests), torch.tensor(lengths) + 1)
    target = torch.randn(rows, vocab) * 2
    logits = None
    if draft is not None:
        logits = torch.randn(requests, steps, vocab)
        for row in range(rows):  # near enough that some are accepted
            if position[row] < steps:
                logits[request[row], position[row]] = target[row] + torch.randn(vocab) * 0.3
        logits = logits.to(draft)
    tokens = target.roll(1, 0).argmax(-1)
    tokens[::7] = -1
    mapping = torch.arange(requests).flip(0)
    return rejection_sampler_utils.rejection_sample(
        target,
        None if logits is None else logits.flip(0),
        tokens,
        cu,
        torch.arange(rows) + 100,
        mapping,
        mapping[request],
        position,
        torch.tensor(temperature).flip(0),
        torch.arange(requests) * 17 - 3,
        steps,
        **options,
    )


@pytest.mark.parametrize("name", TEMPERATURES)
@pytest.mark.parametrize("draft", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block", [False, True])
def test_rejection_sample(compared, name, draft, block):
    vocab = 9000 if name == "mixed" else 300  # more than one block of 8,192, or of 1,024, or less
    sampled, count = rejection(
        6, 4, vocab, TEMPERATURES[name], draft, [4, 0, 2, 4, 1, 3], use_block_verification=block
    )
    assert ((count >= 1) & (count <= 5)).all()
    for row, n in zip(sampled, count, strict=True):
        assert ((row[:n] >= 0) & (row[:n] < vocab)).all()


def test_rejection_sample_of_one_request(compared):
    rejection(1, 1, 2000, [1.0], torch.float32)


def test_rejection_sample_in_float64_and_with_given_rates(compared):
    rejection(3, 3, 1500, [1.0, 0.0, 0.5], torch.float32, use_fp64=True)
    rates = torch.tensor([0.9, 0.5, 0.1])
    rejection(3, 3, 1500, [1.0, 0.0, 0.5], torch.float32, synthetic_conditional_rates=rates)


def test_rejection_sample_with_a_watermark(compared):
    rejection(
        4,
        2,
        1500,
        [1.0, 0.0, 0.5, 1.0],
        torch.float32,
        contexts=torch.randint(0, 1500, (12, 5)),
        watermarking=torch.tensor([True, True, False, True]),
        watermarking_skip_mask=torch.arange(12) % 3 == 0,
        watermark_key=0x1234567890ABCDEF,
    )


def test_nan_logits_give_a_token_in_range():
    target = torch.full((2, 9000), math.nan)
    sampled, count = rejection_sampler_utils.rejection_sample(
        target,
        None,
        torch.tensor([0, 5]),
        integers(0, 2),
        torch.arange(2),
        torch.arange(1),
        torch.zeros(2, dtype=torch.int64),
        integers(0, 1),
        torch.tensor([1.0]),
        torch.arange(1),
        1,
    )
    assert count.item() == 1
    assert 0 <= sampled[0, 0].item() < 9000


def test_gather_draft_sampled(compared):
    found, position = gather_draft_sampled(
        torch.arange(40).int() + 500,
        torch.arange(40) + 10,
        torch.tensor([3, 4, 5, 9, 10, 20]),
        torch.tensor([1, 1, 1, 0, 0, 2]),
        integers(0, 1, 2, 0, 1, 0),
        integers(30, 13, 12),
    )
    assert found.tolist() == [503, 504, 505, 509, -1, 520]
    assert position.tolist() == [13, 14, 15, 19, 20, 30]


# -- the acceptance estimator


@pytest.mark.parametrize("requests", [1, 5, 40])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_acceptance_estimator(compared, requests, per_token, dtype):
    steps, vocab = 3, 700
    estimator = OnlineAcceptanceEstimator(requests + 1, steps, torch.device("cpu"))
    estimator.REFIT_INTERVAL = 2
    mapping = torch.randperm(requests + 1)[:requests]
    temperature = torch.rand(requests + 1) * (torch.arange(requests + 1) % 3)
    confidence = torch.zeros(requests, steps)
    for _ in range(2):
        if per_token:
            rows = torch.randn(requests * steps, vocab).to(dtype) * 3
            index = torch.repeat_interleave(mapping, steps)
            index[-1] = -1
            step = torch.arange(requests * steps) % steps
            estimator.predict(rows, index, step, temperature, confidence)
        else:
            for k in range(steps):
                rows = torch.randn(requests, vocab).to(dtype) * 3
                estimator.predict(rows, mapping, torch.tensor(k), temperature, confidence)
        sampled = torch.randint(1, steps + 2, (requests,)).int()
        sampled[0] = 2  # one accepted at least
        rejected = (torch.rand(requests) * (steps + 2 - sampled)).int()
        estimator.observe(mapping, sampled, rejected)
    assert estimator._refits == 1
    assert estimator.slope.isfinite().all()
    assert estimator.intercepts[0].item() != pytest.approx(-0.2, abs=1e-6)
    assert ((confidence >= 0) & (confidence <= 1)).all()


def test_a_certain_draft_is_clamped(compared):
    estimator = OnlineAcceptanceEstimator(2, 1, torch.device("cpu"))
    logits = torch.full((2, 64), -1e4)
    logits[0, 3] = 0.0
    logits[1] = -math.inf
    logits[1, 5] = 2.0
    confidence = torch.zeros(2, 1)
    estimator.predict(logits, torch.arange(2), torch.tensor(0), torch.zeros(2), confidence)
    assert estimator.features.flatten().tolist() == [40.0, 40.0]


# -- the batch


@pytest.mark.parametrize("requests", [1, 3])
def test_prefill_and_positions(compared, requests):
    start = torch.tensor(np.cumsum([0, *([5, 1, 1500][:requests])]), dtype=torch.int32)
    tokens = torch.randint(0, 1000, (4, 2000)).int()
    mapping = torch.tensor([2, 0, 3][:requests])
    prefill, computed = integers(7, 1, 9, 1800), integers(0, 1, 4, 100)
    ids = torch.zeros(2000, dtype=torch.int32)
    following = torch.zeros(3, 4, dtype=torch.int32)
    input_batch.prepare_prefill_inputs(ids, following, mapping, start, tokens, prefill, computed)
    position, lengths = torch.zeros(2000, dtype=torch.int64), torch.full((6,), 9).int()
    input_batch.prepare_pos_seq_lens(mapping, start, computed, position, lengths)
    assert torch.equal(position[:5], torch.arange(4, 9))
    assert lengths[:requests].tolist() == [9, 1, 1600][:requests]
    assert lengths[requests:].tolist() == [0] * (6 - requests)


def test_drafts_are_put_into_the_batch_and_taken_out(compared):
    mapping, start = torch.tensor([1, 0, 2]), integers(0, 4, 5, 9)
    cu = integers(0, 4, 5, 8)
    lengths, prefill = integers(14, 10, 30), integers(9, 5, 40)
    ids = torch.arange(9).int()
    drafts = torch.arange(100, 109).view(3, 3)
    indices = input_batch.combine_sampled_and_draft_tokens(
        ids, mapping, torch.tensor([50, 51, 52]), start, lengths, prefill, drafts, cu, 8
    )
    assert indices.tolist() == [0, 1, 2, 3, 4, 6, 7, 8]
    assert ids.tolist() == [51, 103, 104, 105, 50, 5, 6, 7, 8]
    count = integers(3, 1, 2)
    sampled, rejected = input_batch.get_num_sampled_and_rejected(
        count, lengths, cu, mapping, prefill
    )
    assert sampled.tolist() == [3, 1, 0]
    assert rejected.tolist() == [1, 0, 0]
    expanded, local = input_batch.expand_idx_mapping(mapping, 8, cu, 4)
    assert expanded.tolist() == [1, 1, 1, 1, 0, 2, 2, 2]
    assert local.tolist() == [0, 1, 2, 3, 0, 0, 1, 2]


@pytest.mark.parametrize("bins", [None, 128])
def test_post_update(compared, bins):
    tokens, total = torch.zeros(3, 32).int(), integers(5, 6, 7)
    computed, last = integers(4, 5, 6), torch.zeros(3, dtype=torch.int64)
    counts = None if bins is None else torch.zeros(3, bins).int()
    input_batch.post_update(
        torch.tensor([2, -1, 0]),
        computed,
        last,
        counts,
        torch.arange(12).view(3, 4) % 3,
        integers(3, 2, 0),
        integers(1, 1, 0),
        integers(0, 4, 6, 7),
        tokens,
        total,
    )
    assert total.tolist() == [5, 6, 10]
    assert computed.tolist() == [5, 5, 9]
    if counts is not None:
        assert counts[2, :3].tolist() == [1, 1, 1]


def test_post_update_of_the_pooling_path(compared):
    computed = integers(4, 5, 6)
    input_batch.post_update_num_computed_tokens(torch.tensor([2, 0]), computed, integers(0, 3, 10))
    assert computed.tolist() == [11, 5, 9]
