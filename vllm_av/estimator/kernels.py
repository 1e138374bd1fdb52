# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The estimator's Triton kernels. The formulas are those of :mod:`vllm_av.estimator.reference`.

Rule: no host synchronisation and no launch that depends on data, so that all of it can be captured
in a CUDA graph. Sums run in one program and in one order: every rank gets the same numbers.
Counts that change from step to step (requests, tokens) never cause a compilation.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_tokens"])
def partial_sums_kernel(
    partials_ptr,  # [2, num_tokens, num_blocks] f32: maximum, sum of exponentials
    partials_stride,
    logits_ptr,  # [num_tokens, vocab] before temperature
    logits_stride,
    idx_mapping_ptr,  # [num_tokens] slot, -1 for padding
    idx_mapping_stride,
    temperature_ptr,  # [slots] f32
    num_tokens,
    vocab_size,
    num_blocks,
    BLOCK: tl.constexpr,
):
    """Each block's share of a row's log-sum-exponential, after temperature (0 counts as 1)."""
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    slot = tl.load(idx_mapping_ptr + token * idx_mapping_stride).to(tl.int64)
    if slot < 0:
        return
    temperature = tl.load(temperature_ptr + slot).to(tl.float32)
    temperature = tl.where(temperature > 0.0, temperature, 1.0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(
        logits_ptr + token * logits_stride + offsets,
        mask=offsets < vocab_size,
        other=float("-inf"),
    ).to(tl.float32)
    logits = logits / temperature
    maximum = tl.max(logits, axis=0)
    total = tl.where(maximum > float("-inf"), tl.sum(tl.exp(logits - maximum), axis=0), 0.0)
    place = partials_ptr + token * num_blocks + block
    tl.store(place, maximum)
    tl.store(place + partials_stride, total)


@triton.jit(do_not_specialize=["num_tokens"])
def predict_kernel(
    out_ptr,  # [num_reqs, K] f32, by row of the batch
    out_stride,
    features_ptr,  # [slots, K] f32
    scores_ptr,  # [slots, K] f32
    slots_stride,
    slope_ptr,  # [1] f32
    intercepts_ptr,  # [K] f32
    partials_ptr,
    partials_stride,
    idx_mapping_ptr,
    idx_mapping_stride,
    step_ptr,  # 0-d or [num_tokens]
    num_tokens,
    num_blocks,
    clamp,
    STEP_PER_TOKEN: tl.constexpr,
    NUM_STEPS: tl.constexpr,
    LEARNS: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr,
):
    """Feature, score and probability of one row."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(idx_mapping_ptr + token * idx_mapping_stride).to(tl.int64)
    if slot < 0:
        return
    if STEP_PER_TOKEN:
        step = tl.load(step_ptr + token).to(tl.int64)
        row = token // NUM_STEPS
    else:
        step = tl.load(step_ptr).to(tl.int64)
        row = token
    blocks = tl.arange(0, PADDED_BLOCKS)
    inside = blocks < num_blocks
    place = partials_ptr + token * num_blocks + blocks
    maxima = tl.load(place, mask=inside, other=float("-inf"))
    sums = tl.load(place + partials_stride, mask=inside, other=0.0)
    maximum = tl.max(maxima, axis=0)
    total = tl.sum(sums * tl.exp(maxima - maximum), axis=0)
    # The top token itself is exp(0) = 1 of the sum. A NaN among the logits is one in the sum.
    rest = tl.where(total > 1.0, total - 1.0, 0.0)
    feature = tl.minimum(tl.maximum(-tl.log(rest), -clamp), clamp)
    feature = tl.where(total == total, feature, float("nan"))
    if LEARNS:
        score = tl.load(slope_ptr) * feature + tl.load(intercepts_ptr + step)
        tl.store(features_ptr + slot * slots_stride + step, feature)
        tl.store(scores_ptr + slot * slots_stride + step, score)
    else:
        score = feature
    tl.store(out_ptr + row * out_stride + step, 1.0 / (1.0 + tl.exp(-score)))


@triton.jit(do_not_specialize=["num_reqs"])
def observe_kernel(
    sums_ptr,  # [6, K] f64
    features_ptr,
    scores_ptr,
    slots_stride,
    idx_mapping_ptr,
    num_sampled_ptr,
    num_rejected_ptr,
    mask_ptr,  # [num_reqs] bool, or None
    num_reqs,
    NUM_STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One position's share of the round's sums; see ``reference.observe``."""
    step = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, BLOCK)
    inside = rows < num_reqs
    slot = tl.load(idx_mapping_ptr + rows, mask=inside, other=-1).to(tl.int64)
    teaches = inside & (slot >= 0)
    if mask_ptr is not None:
        teaches = teaches & (tl.load(mask_ptr + rows, mask=inside, other=0) != 0)
    sampled = tl.load(num_sampled_ptr + rows, mask=teaches, other=0).to(tl.int64)
    accepted = tl.maximum(sampled - 1, 0)
    verified = accepted + tl.load(num_rejected_ptr + rows, mask=teaches, other=0).to(tl.int64)
    place = slot * slots_stride + step
    seen = teaches & (step <= accepted) & (step < verified)
    feature = tl.load(features_ptr + place, mask=seen, other=0.0).to(tl.float64)
    score = tl.load(scores_ptr + place, mask=seen, other=0.0).to(tl.float64)
    seen = seen & (feature == feature) & (score - score == 0.0)
    feature = tl.where(seen, feature, 0.0)
    score = tl.where(seen, score, 0.0)
    small = tl.exp(-tl.abs(score))
    weight = tl.where(seen, small / ((1.0 + small) * (1.0 + small)), 0.0)
    probability = tl.where(score >= 0.0, 1.0, small) / (1.0 + small)
    label = tl.where(step < accepted, 1.0, 0.0)
    residual = tl.where(seen, label - probability, 0.0)
    to = sums_ptr + step
    tl.store(to, tl.load(to) + tl.sum(weight * feature * feature, axis=0))
    to += NUM_STEPS
    tl.store(to, tl.load(to) + tl.sum(weight * feature, axis=0))
    to += NUM_STEPS
    tl.store(to, tl.load(to) + tl.sum(weight, axis=0))
    to += NUM_STEPS
    tl.store(to, tl.load(to) + tl.sum(residual * feature, axis=0))
    to += NUM_STEPS
    tl.store(to, tl.load(to) + tl.sum(residual, axis=0))
    to += NUM_STEPS
    tl.store(to, tl.load(to) + tl.sum(tl.where(seen, 1.0, 0.0), axis=0))


@triton.jit
def refit_kernel(
    slope_ptr,
    intercepts_ptr,
    sums_ptr,
    ridge,
    damping,
    NUM_STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The step; see ``reference.step``."""
    k = tl.arange(0, BLOCK)
    real = k < NUM_STEPS
    a = tl.load(sums_ptr + k, mask=real, other=0.0)
    b = tl.load(sums_ptr + NUM_STEPS + k, mask=real, other=0.0)
    c = tl.load(sums_ptr + 2 * NUM_STEPS + k, mask=real, other=0.0) + ridge
    g0 = tl.load(sums_ptr + 3 * NUM_STEPS + k, mask=real, other=0.0)
    g1 = tl.load(sums_ptr + 4 * NUM_STEPS + k, mask=real, other=0.0)
    n = tl.load(sums_ptr + 5 * NUM_STEPS + k, mask=real, other=0.0)
    slope = tl.load(slope_ptr).to(tl.float64)
    intercepts = tl.load(intercepts_ptr + k, mask=real, other=0.0).to(tl.float64)
    total = tl.sum(n, axis=0)
    schur = tl.sum(a - b * b / c, axis=0) + ridge
    move = tl.sum(g0 - b * g1 / c, axis=0) / schur * (total / (total + damping))
    move = tl.maximum(move, -slope)
    moves = (g1 - b * move) / c * (n / (n + damping))
    finite = (move - move == 0.0) & (tl.sum(tl.where(moves - moves == 0.0, 0.0, 1.0), axis=0) == 0)
    tl.store(slope_ptr, tl.where(finite, slope + move, slope))
    tl.store(intercepts_ptr + k, tl.where(finite, intercepts + moves, intercepts), mask=real)
    for row in tl.static_range(6):
        tl.store(sums_ptr + row * NUM_STEPS + k, tl.zeros((BLOCK,), tl.float64), mask=real)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(0, n - 1).bit_length()
