# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Triton kernels by which the estimator for mixed traffic learns; the formulas stand in
:mod:`vllm_av.estimator.tempered.formula`.

Rule: no host synchronisation and no launch that depends on data, so that all of it can be captured
in a CUDA graph. A round's sums are exact, so no order of requests changes a bit of them: every rank
gets the same numbers, and rows that may not teach leave no trace. Counts that change from step to
step (requests, tokens) never cause a compilation.

Features, scores and the coefficients that predict are float32 (:mod:`.scoring`); sums, curvature
and the coefficients that learn are float64. They are a few thousand operations.
"""

import triton
import triton.language as tl

from vllm_av.estimator.tempered import rules
from vllm_av.estimator.tempered.scoring import KEPT, softplus

KNOTS = len(rules.KNOTS)
SIZE = KNOTS * rules.FEATURES
"""Coefficients at the knots: knot by knot, and within one feature by feature."""
PADDED = 32
"""A power of two that holds them."""

# A round's sums, [KNOTS, K, SUMS] float64, of the labels of a position by the knot below them and
# the one above: the shares of both make a label count once.
TRIANGLE = rules.FEATURES * (rules.FEATURES + 1) // 2
SAME = 0
"""w h h x x' at a knot, the upper triangle, row by row."""
NEXT = SAME + TRIANGLE
"""The same of a knot and the next."""
TO_POSITION = NEXT + TRIANGLE
"""w h x."""
GRADIENT = TO_POSITION + rules.FEATURES
"""r h x."""
SHARES = GRADIENT + rules.FEATURES
"""h: labels."""
SUMS = SHARES + 1
GRID = 1.5 * 2.0**24
"""Added to a term and taken away again, leaves the nearest multiple of 2^-28. Sums of such are
exact up to 2^25: some 100,000 labels a round with features at their largest, or millions of usual
ones."""

_KNOTS = tl.constexpr(KNOTS)
_FEATURES = tl.constexpr(rules.FEATURES)
_SIZE = tl.constexpr(SIZE)
_PADDED = tl.constexpr(PADDED)
_NEXT = tl.constexpr(NEXT)
_TO_POSITION = tl.constexpr(TO_POSITION)
_GRADIENT = tl.constexpr(GRADIENT)
_SHARES = tl.constexpr(SHARES)
_SUMS = tl.constexpr(SUMS)
_GRID = tl.constexpr(GRID)
_FEWEST_LABELS = tl.constexpr(rules.FEWEST_LABELS)
_START_MEMORY = tl.constexpr(rules.START_MEMORY)
_START_REMAINS = tl.constexpr(rules.START_REMAINS)
_SURPRISE = tl.constexpr(rules.SURPRISE)
_KEPT = tl.constexpr(KEPT)


@triton.jit
def _grow(place, value):
    """Add f64 values, exactly."""
    tl.store(place, tl.load(place) + tl.sum((value + _GRID) - _GRID, axis=0))


@triton.jit
def _grow_row(to, value, u, v, m, e):
    """value x."""
    _grow(to, value * u)
    _grow(to + 1, value * v)
    _grow(to + 2, value * m)
    _grow(to + 3, value * e)
    _grow(to + 4, value)


@triton.jit
def _grow_products(to, weight, u, v, m, e):
    """The upper triangle of weight x x'."""
    _grow_row(to, weight * u, u, v, m, e)
    _grow(to + 5, weight * v * v)
    _grow(to + 6, weight * v * m)
    _grow(to + 7, weight * v * e)
    _grow(to + 8, weight * v)
    _grow(to + 9, weight * m * m)
    _grow(to + 10, weight * m * e)
    _grow(to + 11, weight * m)
    _grow(to + 12, weight * e * e)
    _grow(to + 13, weight * e)
    _grow(to + 14, weight)


@triton.jit(do_not_specialize=["num_reqs"])
def observe_kernel(
    sums_ptr,  # [KNOTS, K, SUMS] f64
    masked_ptr,  # [K] f64, labels that were not to teach
    features_ptr,  # [slots, K, KEPT] f32
    scores_ptr,  # [slots, K] f32
    idx_mapping_ptr,
    num_sampled_ptr,
    num_rejected_ptr,
    mask_ptr,  # [num_reqs] bool, or None
    num_reqs,
    NUM_STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The labels of one draft position, as far as they belong to one knot, into the round."""
    knot = tl.program_id(0).to(tl.int64)
    step = tl.program_id(1).to(tl.int64)
    rows = tl.arange(0, BLOCK)
    inside = rows < num_reqs
    slot = tl.load(idx_mapping_ptr + rows, mask=inside, other=-1).to(tl.int64)
    real = inside & (slot >= 0)
    # The bonus token is sampled, and no draft.
    sampled = tl.load(num_sampled_ptr + rows, mask=real, other=0).to(tl.int64)
    accepted = tl.maximum(sampled - 1, 0)
    verified = accepted + tl.load(num_rejected_ptr + rows, mask=real, other=0).to(tl.int64)
    seen = real & (step <= accepted) & (step < verified)
    place = slot * NUM_STEPS + step
    score = tl.load(scores_ptr + place, mask=seen, other=0.0).to(tl.float64)
    seen = seen & (score - score == 0.0)
    if mask_ptr is not None:
        teaches = seen & (tl.load(mask_ptr + rows, mask=inside, other=0) != 0)
        if knot == 0:
            held_back = tl.where(seen & (teaches == 0), 1.0, 0.0).to(tl.float64)
            _grow(masked_ptr + step, held_back)
        seen = teaches
    score = tl.where(seen, score, 0.0)
    at = features_ptr + place * _KEPT
    feature = tl.load(at, mask=seen, other=0.0).to(tl.float64)
    m = tl.log(1.0 + tl.load(at + 1, mask=seen, other=0.0).to(tl.float64))
    x = tl.load(at + 2, mask=seen, other=0.0).to(tl.float64)
    e = tl.load(at + 3, mask=seen, other=0.0).to(tl.float64)
    v = softplus(feature)
    u = feature - v
    here = tl.where(seen, tl.maximum(1.0 - tl.abs(x - knot), 0.0), 0.0)
    there = tl.where(seen, tl.maximum(1.0 - tl.abs(x - (knot + 1)), 0.0), 0.0)

    small = tl.exp(-tl.abs(score))
    probability = tl.where(score >= 0.0, 1.0, small) / (1.0 + small)
    residual = tl.where(step < accepted, 1.0, 0.0).to(tl.float64) - probability
    size = tl.maximum(tl.abs(score), 1e-9)
    bound = (1.0 - small) / (1.0 + small) / (2.0 * size)
    likely = tl.abs(residual) <= _SURPRISE
    weight = tl.where(likely, small / ((1.0 + small) * (1.0 + small)), bound)

    to = sums_ptr + (knot * NUM_STEPS + step) * _SUMS
    weight = weight * here
    _grow_products(to, weight * here, u, v, m, e)
    _grow_products(to + _NEXT, weight * there, u, v, m, e)
    _grow_row(to + _TO_POSITION, weight, u, v, m, e)
    _grow_row(to + _GRADIENT, residual * here, u, v, m, e)
    _grow(to + _SHARES, here)


@triton.jit
def _prior(at, share, precision_ptr):
    """P between coefficients at the knots; 0 between features."""
    row = at[:, None]
    column = at[None, :]
    same = (row % _FEATURES == column % _FEATURES) & (row < _SIZE) & (column < _SIZE)
    beside = same & (tl.abs(row // _FEATURES - column // _FEATURES) == 1)
    squares = share * share
    coupled = tl.where(beside, 0.5 * (squares[:, None] + squares[None, :]), 0.0)
    held = share[:, None] * share[None, :] / (_KNOTS * _KNOTS) - coupled
    held += tl.where(row == column, tl.sum(coupled, axis=1)[:, None], 0.0)
    return tl.where(same, held * tl.load(precision_ptr + row % _FEATURES), 0.0)


@triton.jit
def _start_share(labels):
    """How much of the prior is left."""
    return tl.sqrt(tl.maximum(tl.exp(-labels / _START_MEMORY), _START_REMAINS))


@triton.jit
def _knot_column(sums_ptr, cross_ptr, at, k, NUM_STEPS: tl.constexpr):
    """Curvature between the coefficients ``at`` of the knots and position ``k``."""
    real = (at < _SIZE) & (k < NUM_STEPS)
    knot = at // _FEATURES
    found = tl.load(cross_ptr + at * NUM_STEPS + k, mask=real, other=0.0)
    place = (knot * NUM_STEPS + k) * _SUMS + _TO_POSITION + at % _FEATURES
    return found + tl.load(sums_ptr + place, mask=real, other=0.0)


@triton.jit
def refit_kernel(
    by_knot_ptr,  # [SIZE] f32, in force
    intercepts_ptr,  # [K] f32, in force
    coefficients_ptr,  # [SIZE + K] f64, the same
    start_ptr,  # [SIZE + K] f64
    labels_ptr,  # [SIZE + K] f64, that each coefficient has had before this round
    sums_ptr,  # [KNOTS, K, SUMS] f64
    knots_ptr,  # [SIZE, SIZE] f64, curvature between coefficients at the knots
    cross_ptr,  # [SIZE, K] f64, between these and the positions
    own_ptr,  # [K] f64, of the positions
    gradient_ptr,  # [SIZE + K] f64
    precision_ptr,  # [FEATURES] f64, of the start values
    refits_ptr,  # [1] f64
    NUM_STEPS: tl.constexpr,
    MEMORY: tl.constexpr,
    BLOCK: tl.constexpr,  # a power of two that holds K
):
    """Close the round: add its sums, move the coefficients, age what is known, clear the sums."""
    k = tl.arange(0, BLOCK)
    is_position = k < NUM_STEPS
    at = tl.arange(0, _PADDED)
    real = at < _SIZE

    # What the round adds.
    round_k = tl.zeros((BLOCK,), tl.float64)
    own = tl.load(own_ptr + k, mask=is_position, other=0.0)
    pull_k = tl.load(gradient_ptr + _SIZE + k, mask=is_position, other=0.0)
    for j in tl.static_range(_KNOTS):
        place = sums_ptr + (j * NUM_STEPS + k) * _SUMS
        round_k += tl.load(place + _SHARES, mask=is_position, other=0.0)
        own += tl.load(place + _TO_POSITION + _FEATURES - 1, mask=is_position, other=0.0)
        pull_k += tl.load(place + _GRADIENT + _FEATURES - 1, mask=is_position, other=0.0)
    round_k = tl.where(round_k - round_k == 0.0, round_k, 0.0)
    labels_k = tl.load(labels_ptr + _SIZE + k, mask=is_position, other=0.0) + round_k
    if tl.sum(labels_k, axis=0) < _FEWEST_LABELS:
        return

    row = at[:, None]
    column = at[None, :]
    apart = tl.abs(row // _FEATURES - column // _FEATURES)
    known = (row < _SIZE) & (column < _SIZE)
    first = tl.minimum(row % _FEATURES, column % _FEATURES)
    last = tl.maximum(row % _FEATURES, column % _FEATURES)
    which = first * (2 * _FEATURES - 1 - first) // 2 + last + apart * _NEXT
    below = tl.minimum(row // _FEATURES, column // _FEATURES)
    curvature = tl.load(knots_ptr + row * _SIZE + column, mask=known, other=0.0)
    pull = tl.load(gradient_ptr + at, mask=real, other=0.0)
    round_at = tl.zeros((_PADDED,), tl.float64)
    for step in range(NUM_STEPS):
        products = sums_ptr + (below * NUM_STEPS + step) * _SUMS + which
        curvature += tl.load(products, mask=known & (apart <= 1), other=0.0)
        rows = sums_ptr + (at // _FEATURES * NUM_STEPS + step) * _SUMS
        pull += tl.load(rows + _GRADIENT + at % _FEATURES, mask=real, other=0.0)
        round_at += tl.load(rows + _SHARES, mask=real, other=0.0)
    round_at = tl.where(round_at - round_at == 0.0, round_at, 0.0)
    labels_at = tl.load(labels_ptr + at, mask=real, other=0.0) + round_at

    # The quadratic of labels and start values.
    share = _start_share(labels_at)
    share_k = _start_share(labels_k)
    prior = _prior(at, share, precision_ptr)
    prior_k = share_k * share_k * tl.load(precision_ptr + _FEATURES - 1)
    moved = tl.load(coefficients_ptr + at, mask=real, other=0.0)
    moved -= tl.load(start_ptr + at, mask=real, other=0.0)
    coefficients_k = tl.load(coefficients_ptr + _SIZE + k, mask=is_position, other=0.0)
    moved_k = coefficients_k - tl.load(start_ptr + _SIZE + k, mask=is_position, other=0.0)
    right = pull - tl.sum(prior * moved[None, :], axis=1)
    right_k = pull_k - prior_k * moved_k
    whole_k = tl.where(is_position, own + prior_k, 1.0)

    # Its minimum: the positions are eliminated, then the knots one by one. Positive definite
    # matrices need no pivoting.
    system = tl.where(known, curvature + prior, tl.where(row == column, 1.0, 0.0))
    for step in range(NUM_STEPS):
        whole = tl.sum(tl.where(k == step, whole_k, 0.0), axis=0)
        right_step = tl.sum(tl.where(k == step, right_k, 0.0), axis=0)
        one = _knot_column(sums_ptr, cross_ptr, at, step, NUM_STEPS)
        system -= one[:, None] * one[None, :] / whole
        right -= one * right_step / whole
    for pivot in range(_SIZE):
        pivot_row = tl.sum(tl.where(row == pivot, system, 0.0), axis=0)
        pivot_column = tl.sum(tl.where(column == pivot, system, 0.0), axis=1)
        diagonal = tl.sum(tl.where(at == pivot, pivot_column, 0.0), axis=0)
        factor = tl.where(at == pivot, 0.0, pivot_column / diagonal)
        system -= factor[:, None] * pivot_row[None, :]
        right -= factor * tl.sum(tl.where(at == pivot, right, 0.0), axis=0)
    step_at = right / tl.sum(tl.where(row == column, system, 0.0), axis=1)
    step_at = tl.where(real, step_at, 0.0)
    cross = _knot_column(sums_ptr, cross_ptr, row, k[None, :], NUM_STEPS)
    cross = tl.where((row < _SIZE) & is_position[None, :], cross, 0.0)
    step_k = (right_k - tl.sum(cross * step_at[:, None], axis=0)) / whole_k
    step_k = tl.where(is_position, step_k, 0.0)
    finite = tl.sum(step_at - step_at, axis=0) + tl.sum(step_k - step_k, axis=0) == 0.0
    # Nothing here can bring about a step that is not finite, a fault of the device might. It is not
    # taken, and what it came from is forgotten: left in, there would never be another step.
    step_at = tl.where(finite, step_at, 0.0)
    step_k = tl.where(finite, step_k, 0.0)
    curvature = tl.where(finite, curvature, 0.0)
    cross = tl.where(finite, cross, 0.0)
    own = tl.where(finite, own, 0.0)
    pull = tl.where(finite, pull, 0.0)
    pull_k = tl.where(finite, pull_k, 0.0)
    pull -= tl.sum(curvature * step_at[None, :], axis=1) + tl.sum(cross * step_k[None, :], axis=1)
    pull_k -= tl.sum(cross * step_at[:, None], axis=0) + own * step_k

    # What is known ages by each coefficient's own labels.
    keeps = tl.exp(-round_at / (2.0 * MEMORY))
    keeps_k = tl.exp(-round_k / (2.0 * MEMORY))
    curvature = keeps[:, None] * curvature * keeps[None, :]
    cross = keeps[:, None] * cross * keeps_k[None, :]
    coefficients = tl.load(coefficients_ptr + at, mask=real, other=0.0) + step_at
    coefficients_k += step_k
    tl.debug_barrier()  # all of the sums have been read
    tl.store(knots_ptr + row * _SIZE + column, curvature, mask=known)
    inside = (row < _SIZE) & is_position[None, :]
    tl.store(cross_ptr + row * NUM_STEPS + k[None, :], cross, mask=inside)
    tl.store(own_ptr + k, keeps_k * own * keeps_k, mask=is_position)
    tl.store(gradient_ptr + at, keeps * pull, mask=real)
    tl.store(gradient_ptr + _SIZE + k, keeps_k * pull_k, mask=is_position)
    tl.store(labels_ptr + at, labels_at, mask=real)
    tl.store(labels_ptr + _SIZE + k, labels_k, mask=is_position)
    tl.store(coefficients_ptr + at, coefficients, mask=real)
    tl.store(coefficients_ptr + _SIZE + k, coefficients_k, mask=is_position)
    tl.store(by_knot_ptr + at, coefficients.to(tl.float32), mask=real)
    tl.store(intercepts_ptr + k, coefficients_k.to(tl.float32), mask=is_position)
    tl.store(refits_ptr, tl.load(refits_ptr) + 1.0)
    for j in range(_KNOTS):
        for cleared in range(_SUMS):
            spent = sums_ptr + (j * NUM_STEPS + k) * _SUMS + cleared
            tl.store(spent, tl.zeros((BLOCK,), tl.float64), mask=is_position)
