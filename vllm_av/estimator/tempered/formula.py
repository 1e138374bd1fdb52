r"""The estimator for mixed traffic: the model, its prior and the refit.

Model. q is the probability of the drafter's top token *at temperature 1*, whatever the request's
temperature T is: after a low temperature the distribution has next to nothing left to tell drafts
apart by. All of it is a function of the prefix alone, never of the token drawn.

    features   u = log q,  v = -log(1 - q),  m = log(1 + log q - log of the second best),
               e = the mean log-odds of the earlier drafts of the block, 0 for the first
    score      z = a(T) u + b(T) v + c(T) m + d(T) e + l(T) + i_k     for draft position k
    probability  p = sigmoid(z)

u + v is the log-odds of q, clamped; a slope for each half is beta calibration (Kull, Silva Filho
and Flach 2017), which follows a reliability curve that bends. The margin says at low temperatures
what the log-odds do not: whether target and drafter agree on the best token hangs on the second
best. A block whose earlier drafts were certain is likelier to be right here too; without e, that is
left out of every product of probabilities, and long survivals come out too short.
a, b, c, d and l are linear between the KNOTS: T lies between two, with shares h_j + h_j+1 = 1, and
a feature vector x has h (u, v, m, e, 1) at these two knots and 1 at its position: 5 J + K
coefficients, t below.

Labels are censored: position k of a request has one if everything before it was accepted and k was
verified. y = 1 for an accepted draft, 0 for the first rejected one; r = y - p, p as it was at draft
time. The loss of all labels is kept as a quadratic around the present coefficients,

    g = sum of r x,    A = sum of w x x',    w = p (1 - p), or tanh(z/2) / (2z) where p(y) < 1/2

and so are the start values t0, as a prior of precision P. A refit takes its minimum,

    d = (A + P)^-1 (g - P (t - t0)),    t <- t + d,    g <- g - A d

and then ages the quadratic: A <- E A E, g <- E g, e = exp(-n / (2 memory)) with the n labels that a
coefficient has had in the round (at a knot: their shares). So a coefficient forgets by its own
labels: a rare temperature or a deep position keeps what it knows.

The prior fades likewise, by the share s = exp(-N / (2 START_MEMORY)) of each coefficient, with all
labels N that it has had, down to a least one. With m = t - t0, and for each feature at the knots

    m'P m = mean(s m)^2 + sum over neighbours of (s_j^2 + s_j+1^2) / 2 (m_j+1 - m_j)^2

(s m)^2 for a position, each times what ``damping`` labels say. Without labels of its own a knot
follows its neighbours.

w >= p (1 - p) always, and the weight of a surprising label is a bound that Newton's step cannot
overshoot (Jaakkola and Jordan 2000); the fixed point, g = 0, is the same for every w. There is no
step size, no undoing, and no constraint: A + P is positive definite. A slope below 0 is what
the labels say, near 0 by chance and otherwise for a reason; the scores stay probabilities of the
prefix.

A is block-tridiagonal over the knots, dense from knots to positions, and diagonal over positions:
O(K) a knot. Non-finite features never enter.

Rule: NumPy float64, and no state; :mod:`vllm_av.estimator.tempered.kernels` must agree with it.
"""

import numpy as np
from numpy.typing import NDArray

from vllm_av.estimator.tempered import rules

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def places(temperature: Floats) -> Floats:
    """Where temperatures lie among the knots: 1.5 is half-way from the second to the third."""
    return np.asarray(np.interp(temperature, rules.KNOTS, np.arange(len(rules.KNOTS), dtype=float)))


def features(log_odds: Floats, margin: Floats, before: Floats) -> Floats:
    """[n, 5], of :data:`rules.FEATURES`.

    Args:
        log_odds: [n], of the likeliest token, clamped.
        margin: [n], clamped.
        before: [n], of :func:`earlier`.
    """
    with np.errstate(invalid="ignore"):  # of a row that is no distribution
        other = np.logaddexp(0.0, log_odds)
        columns = [log_odds - other, other, np.log1p(margin), before, np.ones_like(other)]
    return np.stack(columns, axis=-1)


def earlier(log_odds: Floats) -> Floats:
    """[n, K], the mean log-odds of each draft's earlier ones in its block.

    Args:
        log_odds: [n, K]; what is not finite counts as 0.
    """
    clamp = rules.BEFORE_CLAMP
    sure = np.clip(np.where(np.isfinite(log_odds), log_odds, 0.0), -clamp, clamp)
    count = np.maximum(np.arange(log_odds.shape[1]), 1)
    return np.asarray((np.cumsum(sure, axis=1) - sure) / count)


def margins(logits: Floats) -> Floats:
    """Best minus second-best logit of each row; 0 for a tie, infinite without a second one.

    Args:
        logits: [rows, vocab], vocab at least 1.
    """
    raw = np.asarray(logits, np.float64)
    if raw.shape[1] < 2:
        return np.full(len(raw), np.inf)
    second, best = np.partition(raw, -2, axis=1)[:, -2:].T
    with np.errstate(invalid="ignore"):  # of a row that is no distribution
        return np.asarray(best - second)


def design(found: Floats, place: Floats, position: Integers, num_positions: int) -> Floats:
    """[n, 5 J + K], the feature vectors x.

    Args:
        found: [n, 5], of :func:`features`.
        place: [n], of :func:`places`.
        position: [n].
        num_positions: K.
    """
    knots = len(rules.KNOTS)
    rows = np.arange(len(found))
    lower = np.clip(np.floor(place).astype(np.int64), 0, knots - 2)
    share = (place - lower)[:, None]
    x = np.zeros((len(found), knots + 1, rules.FEATURES))
    x[rows, lower] = (1.0 - share) * found
    x[rows, lower + 1] = share * found
    at = np.zeros((len(found), num_positions))
    at[rows, position] = 1.0
    return np.concatenate([x[:, :knots].reshape(len(found), -1), at], axis=1)


def weights(score: Floats, residual: Floats) -> Floats:
    """w of each label."""
    size = np.maximum(np.abs(score), 1e-9)
    small = np.exp(-size)
    bound = (1.0 - small) / (1.0 + small) / (2.0 * size)
    likely = np.abs(residual) <= rules.SURPRISE
    return np.asarray(np.where(likely, small / (1.0 + small) ** 2, bound))


def prior(labels: Floats, damping: float, num_positions: int) -> Floats:
    """[5 J + K, 5 J + K], P of the head.

    Args:
        labels: [5 J + K], that each coefficient has had.
        damping: below 1 it counts as 1.
        num_positions: K.
    """
    knots = len(rules.KNOTS)
    share = np.sqrt(np.maximum(np.exp(-labels / rules.START_MEMORY), rules.START_REMAINS))
    steps = np.diff(np.eye(knots), axis=0)
    size = knots * rules.FEATURES
    result = np.zeros((size + num_positions, size + num_positions))
    for place, says in enumerate(rules.LABEL_SAYS):
        own = share[place : size : rules.FEATURES]
        between = (own[1:] ** 2 + own[:-1] ** 2) / 2.0
        held = np.outer(own, own) / knots**2 + (steps.T * between) @ steps
        result[place : size : rules.FEATURES, place : size : rules.FEATURES] = says * held
    at = np.arange(size, size + num_positions)
    result[at, at] = rules.LABEL_SAYS[-1] * share[size:] ** 2
    return max(damping, 1.0) * result
