# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The estimator's Triton kernels; the formulas stand in :mod:`vllm_av.estimator.formula`.

Rule: no host synchronisation and no launch that depends on data, so that all of it can be captured
in a CUDA graph. Sums run in one program and in one order: every rank gets the same numbers.
Counts that change from step to step (requests, tokens) never cause a compilation.

Features, scores and coefficients are float32, as upstream's; a round's sums and the step are
float64, so that decisions fall as in the reference. They are a few thousand operations.
"""

import triton
import triton.language as tl

from vllm_av.estimator import rules

# Rows of the table of sums, [ROWS, K] float64.
NOW = 0
"""a, b, c, g0, g1, loss at the scores of draft time."""
PAST = 6
"""The same at the coefficients before the last step."""
LABELS = 12
ACCEPTED = 13
LOWEST = 14
HIGHEST = 15
RATE_LABELS = 16
"""This row and those after it outlast the round."""
RATE_ACCEPTED = 17
MASKED = 18
"""Labels that were known and not allowed to teach."""
ROWS = 19

# Places in the vector of scalars, float64.
REACH = 0
LAST_REACH = 1
UNDONE = 2
RESTARTS = 3
SCALARS = 4

_PAST = tl.constexpr(PAST)
_LABELS = tl.constexpr(LABELS)
_ACCEPTED = tl.constexpr(ACCEPTED)
_LOWEST = tl.constexpr(LOWEST)
_HIGHEST = tl.constexpr(HIGHEST)
_RATE_LABELS = tl.constexpr(RATE_LABELS)
_RATE_ACCEPTED = tl.constexpr(RATE_ACCEPTED)
_MASKED = tl.constexpr(MASKED)
_LAST_REACH = tl.constexpr(LAST_REACH)
_UNDONE = tl.constexpr(UNDONE)
_RESTARTS = tl.constexpr(RESTARTS)

_PROVEN_REACH = tl.constexpr(rules.PROVEN_REACH)
_LATER_REACH = tl.constexpr(rules.LATER_REACH)
_REACH_AFTER_UNDO = tl.constexpr(rules.REACH_AFTER_UNDO)
_LEAST_REACH = tl.constexpr(rules.LEAST_REACH)
_CHANCE = tl.constexpr(rules.CHANCE)
_NATS_REMEMBERED = tl.constexpr(rules.NATS_REMEMBERED)
_LABELS_REMEMBERED = tl.constexpr(rules.LABELS_REMEMBERED)
_RATE_MEMORY = tl.constexpr(rules.RATE_MEMORY)
_RATES_SEE_LABELS = tl.constexpr(rules.RATES_SEE_LABELS)
_FEW_LABELS = tl.constexpr(rules.FEW_LABELS)
_TIE = tl.constexpr(rules.TIE)
_FLAT = tl.constexpr(rules.FLAT)


@triton.jit
def _binary_scale(temperature_ptr, slot):
    """exp((l - m) / temperature) = 2^((l - m) scale); without temperatures, as if it were 1.
    Differences are scaled, not logits: of a logit of 3,000, as temperature 0.01 makes it, float32
    keeps three decimals."""
    scale = 1.4426950408889634
    if temperature_ptr is not None:
        temperature = tl.load(temperature_ptr + slot).to(tl.float32)
        scale = scale / tl.where(temperature > 0.0, temperature, 1.0)
    return scale


@triton.jit(do_not_specialize=["num_tokens"])
def partial_sums_kernel(
    partials_ptr,  # [num_tokens, 2, num_blocks] f32: maximum, sum of exponentials relative to it
    logits_ptr,  # [num_tokens, vocab] before temperature
    logits_stride,
    idx_mapping_ptr,  # [num_tokens] slot, -1 for padding
    idx_mapping_stride,
    temperature_ptr,  # [slots] f32, or None
    num_tokens,
    vocab_size,
    num_blocks,
    BLOCK: tl.constexpr,
):
    """Each block's share of a row's log-sum-exponential; a block of -inf has a sum of 0."""
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    slot = tl.load(idx_mapping_ptr + token * idx_mapping_stride).to(tl.int64)
    if slot < 0:
        return
    scale = _binary_scale(temperature_ptr, slot)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(
        logits_ptr + token * logits_stride + offsets,
        mask=offsets < vocab_size,
        other=float("-inf"),
    ).to(tl.float32)
    maximum = tl.max(logits, axis=0)
    total = tl.sum(tl.exp2((logits - maximum) * scale), axis=0)
    place = partials_ptr + token * 2 * num_blocks + block
    tl.store(place, maximum)
    tl.store(place + num_blocks, tl.where(maximum == float("-inf"), 0.0, total))


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
    logits_ptr,
    logits_stride,
    idx_mapping_ptr,
    idx_mapping_stride,
    temperature_ptr,
    step_ptr,  # 0-d or [num_tokens]
    num_tokens,
    vocab_size,
    num_blocks,
    CLAMP: tl.constexpr,
    STEP_PER_TOKEN: tl.constexpr,
    NUM_STEPS: tl.constexpr,
    LEARNS: tl.constexpr,
    BLOCK: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr,
):
    """Feature, score and probability of one row."""
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
    scale = _binary_scale(temperature_ptr, slot)
    blocks = tl.arange(0, PADDED_BLOCKS)
    inside = blocks < num_blocks
    place = partials_ptr + token * 2 * num_blocks + blocks
    maxima = tl.load(place, mask=inside, other=float("-inf"))
    sums = tl.load(place + num_blocks, mask=inside, other=0.0)
    maximum = tl.max(maxima, axis=0)
    shares = sums * tl.exp2((maxima - maximum) * scale)
    # The top token itself is 2^0 = 1 of the sum.
    rest = tl.sum(shares, axis=0) - 1.0
    if (rest >= 0.0) & (rest < 0.0625):
        # Little is left of it in 1 + rest, so it is summed without the 1, which is in the one
        # block that has the one maximum: two would have made the sum 2.
        top = tl.max(tl.where(maxima == maximum, blocks, 0), axis=0)
        offsets = top * BLOCK + tl.arange(0, BLOCK)
        logits = tl.load(
            logits_ptr + token * logits_stride + offsets,
            mask=offsets < vocab_size,
            other=float("-inf"),
        ).to(tl.float32)
        others = tl.where(logits == maximum, 0.0, tl.exp2((logits - maximum) * scale))
        rest = tl.sum(tl.where(blocks == top, 0.0, shares), axis=0) + tl.sum(others, axis=0)
    feature = tl.minimum(tl.maximum(-tl.log(rest), -CLAMP), CLAMP)
    # A NaN among the logits is one in the sum. NaN says that the row is no distribution.
    is_row = (rest >= 0.0) & (maximum > float("-inf")) & (maximum < float("inf"))
    feature = tl.where(is_row, feature, float("nan"))
    if LEARNS:
        score = tl.load(slope_ptr) * feature + tl.load(intercepts_ptr + step)
        tl.store(features_ptr + slot * slots_stride + step, feature)
        tl.store(scores_ptr + slot * slots_stride + step, score)
    else:
        score = feature
    # Nothing speaks against a draft of which nothing is known.
    probability = tl.where(is_row, 1.0 / (1.0 + tl.exp(-score)), 1.0)
    tl.store(out_ptr + row * out_stride + step, probability)


@triton.jit
def _grow(place, value):
    tl.store(place, tl.load(place) + tl.sum(value, axis=0))


@triton.jit
def _grow_sums(place, feature, score, label, seen, NUM_STEPS: tl.constexpr):
    """One position's a, b, c, g0, g1 and loss; rows that are not seen have feature and score 0."""
    small = tl.exp(-tl.abs(score))
    weight = tl.where(seen, small / ((1.0 + small) * (1.0 + small)), 0.0)
    probability = tl.where(score >= 0.0, 1.0, small) / (1.0 + small)
    residual = tl.where(seen, label - probability, 0.0)
    loss = tl.maximum(score, 0.0) + tl.log(1.0 + small) - label * score
    _grow(place, weight * feature * feature)
    _grow(place + NUM_STEPS, weight * feature)
    _grow(place + 2 * NUM_STEPS, weight)
    _grow(place + 3 * NUM_STEPS, residual * feature)
    _grow(place + 4 * NUM_STEPS, residual)
    _grow(place + 5 * NUM_STEPS, tl.where(seen, loss, 0.0))


@triton.jit(do_not_specialize=["num_reqs"])
def observe_kernel(
    sums_ptr,  # [ROWS, K] f64
    slope_ptr,  # [2] f32: in force, before the last step
    intercepts_ptr,  # [2, K] f32, likewise
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
    """One draft position's labels into the round's sums."""
    step = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, BLOCK)
    inside = rows < num_reqs
    slot = tl.load(idx_mapping_ptr + rows, mask=inside, other=-1).to(tl.int64)
    real = inside & (slot >= 0)
    # The bonus token is sampled, and no draft.
    sampled = tl.load(num_sampled_ptr + rows, mask=real, other=0).to(tl.int64)
    accepted = tl.maximum(sampled - 1, 0)
    verified = accepted + tl.load(num_rejected_ptr + rows, mask=real, other=0).to(tl.int64)
    seen = real & (step <= accepted) & (step < verified)
    if mask_ptr is not None:
        teaches = tl.load(mask_ptr + rows, mask=inside, other=0) != 0
        masked = tl.where(seen & (teaches == 0), 1.0, 0.0).to(tl.float64)
        _grow(sums_ptr + _MASKED * NUM_STEPS + step, masked)
        seen = seen & teaches
    place = slot * slots_stride + step
    feature = tl.load(features_ptr + place, mask=seen, other=0.0).to(tl.float64)
    score = tl.load(scores_ptr + place, mask=seen, other=0.0).to(tl.float64)
    seen = seen & (feature - feature == 0.0) & (score - score == 0.0)
    feature = tl.where(seen, feature, 0.0)
    score = tl.where(seen, score, 0.0)
    label = tl.where(step < accepted, 1.0, 0.0).to(tl.float64)

    to = sums_ptr + step
    _grow_sums(to, feature, score, label, seen, NUM_STEPS)
    past = tl.load(slope_ptr + 1).to(tl.float64) * feature
    past = past + tl.load(intercepts_ptr + NUM_STEPS + step).to(tl.float64)
    _grow_sums(to + _PAST * NUM_STEPS, feature, past, label, seen, NUM_STEPS)
    one = tl.where(seen, 1.0, 0.0).to(tl.float64)
    _grow(to + _LABELS * NUM_STEPS, one)
    _grow(to + _ACCEPTED * NUM_STEPS, one * label)
    lowest = -tl.max(tl.where(seen, -feature, float("-inf")), axis=0)
    highest = tl.max(tl.where(seen, feature, float("-inf")), axis=0)
    at = to + _LOWEST * NUM_STEPS
    tl.store(at, tl.minimum(tl.load(at), lowest))
    at = to + _HIGHEST * NUM_STEPS
    tl.store(at, tl.maximum(tl.load(at), highest))


@triton.jit
def _reach(slope, intercepts, lowest, highest, seen):
    """R: the largest change of a logit of the round."""
    ends = tl.maximum(tl.abs(slope * lowest + intercepts), tl.abs(slope * highest + intercepts))
    return tl.max(tl.where(seen, ends, 0.0), axis=0)


@triton.jit
def _damping(n, entropy, DAMPING: tl.constexpr):
    """D_k."""
    needed = _NATS_REMEMBERED / entropy - tl.maximum(n, _LABELS_REMEMBERED)
    return tl.where(n < _FEW_LABELS, DAMPING, tl.maximum(needed * 0.5, DAMPING))


@triton.jit
def _along(a, b, c, g0, g1, slope, intercepts):
    """G and C."""
    gradient = tl.sum(g0, axis=0) * slope + tl.sum(g1 * intercepts, axis=0)
    curvature = tl.sum(a, axis=0) * slope * slope + tl.sum(
        2.0 * slope * b * intercepts + c * intercepts * intercepts, axis=0
    )
    return gradient, tl.maximum(curvature, 0.0)


@triton.jit
def refit_kernel(
    slope_ptr,  # [2] f32: in force, before the last step
    intercepts_ptr,  # [2, K] f32, likewise
    sums_ptr,  # [ROWS, K] f64
    scalars_ptr,  # [SCALARS] f64
    NUM_STEPS: tl.constexpr,
    RIDGE: tl.constexpr,
    DAMPING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Close the round: judge the last step, take the next one, clear the sums."""
    k = tl.arange(0, BLOCK)
    real = k < NUM_STEPS
    row = sums_ptr + k
    n = tl.load(row + _LABELS * NUM_STEPS, mask=real, other=0.0)
    total = tl.sum(n, axis=0)
    if total == 0.0:
        return
    seen = n > 0.0
    accepted = tl.load(row + _ACCEPTED * NUM_STEPS, mask=real, other=0.0)
    lowest = tl.load(row + _LOWEST * NUM_STEPS, mask=seen, other=0.0)
    highest = tl.load(row + _HIGHEST * NUM_STEPS, mask=seen, other=0.0)

    # The acceptance rates, and how much damping they call for.
    at = row + _RATE_LABELS * NUM_STEPS
    rate_labels = _RATE_MEMORY * tl.load(at, mask=real, other=0.0) + n
    tl.store(at, rate_labels, mask=real)
    at = row + _RATE_ACCEPTED * NUM_STEPS
    rate_accepted = _RATE_MEMORY * tl.load(at, mask=real, other=0.0) + accepted
    tl.store(at, rate_accepted, mask=real)
    overall = (tl.sum(rate_accepted, axis=0) + 0.5) / (tl.sum(rate_labels, axis=0) + 1.0)
    rate = (rate_accepted + overall) / (rate_labels + 1.0)
    log_rate = tl.log(rate)
    log_other = tl.log(1.0 - rate)
    entropy = -(rate * log_rate + (1.0 - rate) * log_other)
    share_k = n / (n + _damping(n, entropy, DAMPING))
    slope_damping = _damping(total, tl.sum(n * entropy, axis=0) / total, DAMPING)

    # Undo the last step, or let it stand.
    a = tl.load(row, mask=real, other=0.0)
    b = tl.load(row + NUM_STEPS, mask=real, other=0.0)
    c = tl.load(row + 2 * NUM_STEPS, mask=real, other=0.0)
    g0 = tl.load(row + 3 * NUM_STEPS, mask=real, other=0.0)
    g1 = tl.load(row + 4 * NUM_STEPS, mask=real, other=0.0)
    loss = tl.sum(tl.load(row + 5 * NUM_STEPS, mask=real, other=0.0), axis=0)
    past = row + _PAST * NUM_STEPS
    past_loss = tl.sum(tl.load(past + 5 * NUM_STEPS, mask=real, other=0.0), axis=0)
    slope = tl.load(slope_ptr).to(tl.float64)
    intercepts = tl.load(intercepts_ptr + k, mask=real, other=0.0).to(tl.float64)
    past_slope = tl.load(slope_ptr + 1).to(tl.float64)
    past_intercepts = tl.load(intercepts_ptr + NUM_STEPS + k, mask=real, other=0.0).to(tl.float64)
    gradient, variance = _along(a, b, c, g0, g1, slope - past_slope, intercepts - past_intercepts)
    fitted = 0.5 * (1.0 + tl.sum(tl.where(seen, 1.0, 0.0), axis=0))
    chance = tl.where(slope_damping > DAMPING, 0.0, fitted + _CHANCE * tl.sqrt(variance))
    worse = loss - past_loss
    undo = (worse > _TIE * past_loss) & (worse > chance)
    allowed = tl.load(scalars_ptr)
    last_reach = tl.load(scalars_ptr + _LAST_REACH)
    shorter = tl.maximum(_REACH_AFTER_UNDO * tl.minimum(allowed, last_reach), _LEAST_REACH)
    allowed = tl.where(undo, shorter, allowed)
    if undo:
        slope = past_slope
        loss = past_loss
        intercepts = past_intercepts
        a = tl.load(past, mask=real, other=0.0)
        b = tl.load(past + NUM_STEPS, mask=real, other=0.0)
        c = tl.load(past + 2 * NUM_STEPS, mask=real, other=0.0)
        g0 = tl.load(past + 3 * NUM_STEPS, mask=real, other=0.0)
        g1 = tl.load(past + 4 * NUM_STEPS, mask=real, other=0.0)

    # The damped Newton step.
    ridged = c + RIDGE
    solvable = ridged > 0.0
    own = tl.where(solvable, g1 / ridged, 0.0)
    mean = tl.where(solvable, b / ridged, 0.0)
    schur = tl.sum(a, axis=0) + RIDGE - tl.sum(b * mean, axis=0)
    ds = (tl.sum(g0, axis=0) - tl.sum(b * own, axis=0)) / schur * (total / (total + slope_damping))
    ds = tl.where(ds < -slope, -slope, ds)  # a maximum would hide a NaN
    ds = tl.where(schur > 0.0, ds, 0.0)
    di = share_k * (own - mean * ds)
    gradient, curvature = _along(a, b, c, g0, g1, ds, di)
    if gradient <= 0.5 * curvature:
        di = share_k * own - mean * ds
        gradient, curvature = _along(a, b, c, g0, g1, ds, di)

    # How much of it is taken.
    reach = _reach(ds, di, lowest, highest, seen)
    finite = (ds - ds == 0.0) & (tl.sum(di - di, axis=0) == 0.0) & (reach - reach == 0.0)
    ratio = tl.minimum(reach * gradient / tl.maximum(curvature, 1e-300), _FLAT)
    length = tl.log(1.0 + ratio)
    held = tl.minimum(length, allowed)
    length = tl.where(allowed < _LATER_REACH, held, tl.maximum(length, _PROVEN_REACH))
    length = tl.minimum(length, reach)
    share = tl.where(reach <= allowed, 1.0, length / reach)
    bound = (tl.exp(length) - 1.0 - length) / (reach * reach)
    bound = tl.where(reach <= allowed, 0.5, bound)
    takes = finite & (gradient > 0.5 * curvature)
    change = tl.where(takes, curvature * bound - share * gradient, 0.0)
    share = tl.where(takes, share, 0.0)

    # The rates alone, where they do better.
    rates_loss = -tl.sum(accepted * log_rate + (n - accepted) * log_other, axis=0)
    rates_loss += _RATES_SEE_LABELS * (1.0 + tl.sum(tl.where(seen, 1.0, 0.0), axis=0))
    restart = (loss > rates_loss) & (loss + change > rates_loss)
    ds = tl.where(restart, -slope, ds)
    di = tl.where(restart, log_rate - log_other - intercepts, di)
    share = tl.where(restart, 1.0, share)
    reach = tl.where(restart, _reach(ds, di, lowest, highest, seen), reach)

    tl.store(slope_ptr + 1, slope)
    tl.store(intercepts_ptr + NUM_STEPS + k, intercepts, mask=real)
    # A step that is not finite is not even multiplied by 0.
    taken = share > 0.0
    tl.store(slope_ptr, tl.where(taken, slope + share * ds, slope))
    tl.store(intercepts_ptr + k, tl.where(taken, intercepts + share * di, intercepts), mask=real)
    tl.store(scalars_ptr, tl.minimum(2.0 * allowed, _LATER_REACH))
    tl.store(scalars_ptr + _LAST_REACH, tl.where(taken, share * reach, 0.0))
    tl.store(scalars_ptr + _UNDONE, tl.load(scalars_ptr + _UNDONE) + tl.where(undo, 1.0, 0.0))
    tl.store(
        scalars_ptr + _RESTARTS, tl.load(scalars_ptr + _RESTARTS) + tl.where(restart, 1.0, 0.0)
    )

    for cleared in tl.static_range(_LOWEST):
        tl.store(row + cleared * NUM_STEPS, tl.zeros((BLOCK,), tl.float64), mask=real)
    infinity = tl.full((BLOCK,), float("inf"), tl.float64)
    tl.store(row + _LOWEST * NUM_STEPS, infinity, mask=real)
    tl.store(row + _HIGHEST * NUM_STEPS, -infinity, mask=real)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(0, n - 1).bit_length()
