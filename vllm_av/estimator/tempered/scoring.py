# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Triton kernels that score drafts by the estimator for mixed traffic; the formulas stand in
:mod:`vllm_av.estimator.tempered.formula`.

Rule: no host synchronisation and no launch that depends on data, so that all of it can be captured
in a CUDA graph. Counts that change from step to step (requests, tokens) never cause a compilation.
All of it is float32.
"""

import triton
import triton.language as tl

from vllm_av.estimator.tempered import rules

KEPT = 4
"""Numbers kept of a draft: log-odds, margin, place among the knots, mean log-odds before."""

_KNOTS = tl.constexpr(len(rules.KNOTS))
_FEATURES = tl.constexpr(rules.FEATURES)
_BEFORE_CLAMP = tl.constexpr(rules.BEFORE_CLAMP)
_KEPT = tl.constexpr(KEPT)


@triton.jit
def softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit(do_not_specialize=["num_tokens"])
def feature_kernel(
    features_ptr,  # [slots, K, KEPT] f32
    partials_ptr,  # [num_tokens, 2, num_blocks] f32, of the kernel that makes them
    logits_ptr,  # [num_tokens, vocab] before temperature
    logits_stride,
    idx_mapping_ptr,  # [num_tokens] slot, -1 for padding
    idx_mapping_stride,
    step_ptr,  # 0-d or [num_tokens]
    num_tokens,
    vocab_size,
    num_blocks,
    CLAMP: tl.constexpr,
    STEP_PER_TOKEN: tl.constexpr,
    NUM_STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr,
):
    """Log-odds and margin of one row; NaN for a row that is no distribution."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(idx_mapping_ptr + token * idx_mapping_stride).to(tl.int64)
    if slot < 0:
        return
    step = tl.load(step_ptr + (token if STEP_PER_TOKEN else 0)).to(tl.int64)
    scale = 1.4426950408889634
    blocks = tl.arange(0, PADDED_BLOCKS)
    inside = blocks < num_blocks
    at = partials_ptr + token * 2 * num_blocks + blocks
    maxima = tl.load(at, mask=inside, other=float("-inf"))
    shares = tl.load(at + num_blocks, mask=inside, other=0.0)
    maximum = tl.max(maxima, axis=0)
    shares = shares * tl.exp2((maxima - maximum) * scale)
    # The block of the top token again: without the token itself, of which float32 leaves nothing
    # in a sum with the others where it has nearly all the mass, and for the second best.
    top = tl.max(tl.where(maxima == maximum, blocks, 0), axis=0)
    offsets = top * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(
        logits_ptr + token * logits_stride + offsets,
        mask=offsets < vocab_size,
        other=float("-inf"),
    ).to(tl.float32)
    best = logits == maximum
    ties = tl.sum(best.to(tl.int32), axis=0) - 1
    others = tl.where(best, 0.0, tl.exp2((logits - maximum) * scale))
    rest = tl.sum(others, axis=0) + ties.to(tl.float32)
    rest += tl.sum(tl.where(blocks == top, 0.0, shares), axis=0)
    second = tl.max(tl.where(best, float("-inf"), logits), axis=0)
    second = tl.maximum(second, tl.max(tl.where(blocks == top, float("-inf"), maxima), axis=0))
    margin = tl.minimum(tl.where(ties > 0, 0.0, maximum - second), CLAMP)
    feature = tl.minimum(tl.maximum(-tl.log(rest), -CLAMP), CLAMP)
    # A NaN among the logits is one in a sum, of its own block or of another.
    whole = tl.sum(tl.where(inside, shares, 0.0), axis=0)
    is_row = (rest >= 0.0) & (whole >= 0.0)
    is_row = is_row & (maximum > float("-inf")) & (maximum < float("inf"))
    feature = tl.where(is_row, feature, float("nan"))
    place = features_ptr + (slot * NUM_STEPS + step) * _KEPT
    tl.store(place, feature)
    tl.store(place + 1, margin)


@triton.jit(do_not_specialize=["num_tokens"])
def score_kernel(
    out_ptr,  # [num_reqs, K] f32, by row of the batch
    out_stride,
    features_ptr,  # [slots, K, KEPT] f32
    scores_ptr,  # [slots, K] f32
    knots_ptr,  # [KNOTS] f32, temperatures
    by_knot_ptr,  # [KNOTS, FEATURES] f32
    intercepts_ptr,  # [K] f32
    idx_mapping_ptr,  # [num_tokens] slot, -1 for padding
    idx_mapping_stride,
    temperature_ptr,  # [slots] f32
    step_ptr,  # 0-d or [num_tokens]
    num_tokens,
    STEP_PER_TOKEN: tl.constexpr,
    NUM_STEPS: tl.constexpr,
    BLOCK: tl.constexpr,  # a power of two that holds K
):
    """Score and probability of one row, when the features of its whole block so far are there."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(idx_mapping_ptr + token * idx_mapping_stride).to(tl.int64)
    if slot < 0:
        return
    # A step per token means that each request owns NUM_STEPS consecutive rows.
    if STEP_PER_TOKEN:
        step = tl.load(step_ptr + token).to(tl.int64)
        row = token // NUM_STEPS
    else:
        step = tl.load(step_ptr).to(tl.int64)
        row = token
    temperature = tl.load(temperature_ptr + slot).to(tl.float32)
    knot = tl.full((), 0, tl.int32)
    for above in tl.static_range(1, _KNOTS - 1):
        knot += tl.where(temperature >= tl.load(knots_ptr + above), 1, 0)
    low = tl.load(knots_ptr + knot)
    share = (temperature - low) / (tl.load(knots_ptr + knot + 1) - low)
    share = tl.minimum(tl.maximum(share, 0.0), 1.0)

    drafts = tl.arange(0, BLOCK)
    at = features_ptr + (slot * NUM_STEPS + drafts) * _KEPT
    sure = tl.load(at, mask=drafts < step, other=0.0)
    sure = tl.where(sure - sure == 0.0, sure, 0.0)
    sure = tl.minimum(tl.maximum(sure, -_BEFORE_CLAMP), _BEFORE_CLAMP)
    before = tl.sum(sure, axis=0) / tl.maximum(step, 1).to(tl.float32)
    place = features_ptr + (slot * NUM_STEPS + step) * _KEPT
    feature = tl.load(place)
    margin = tl.log(1.0 + tl.load(place + 1))
    doubt = softplus(feature)
    score = tl.load(intercepts_ptr + step)
    for which in tl.static_range(2):
        held = by_knot_ptr + (knot + which) * _FEATURES
        part = tl.load(held) * (feature - doubt) + tl.load(held + 1) * doubt
        part += tl.load(held + 2) * margin + tl.load(held + 3) * before + tl.load(held + 4)
        score += tl.where(which == 0, 1.0 - share, share) * part
    tl.store(place + 2, knot.to(tl.float32) + share)
    tl.store(place + 3, before)
    tl.store(scores_ptr + slot * NUM_STEPS + step, score)
    # Nothing speaks against a draft of which nothing is known.
    probability = tl.where(score - score == 0.0, 1.0 / (1.0 + tl.exp(-score)), 1.0)
    tl.store(out_ptr + row * out_stride + step, probability)
