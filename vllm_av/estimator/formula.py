r"""The online acceptance estimator: features, normal equations, the step and what makes it safe.

Model. q is the drafter's distribution at one draft position, after temperature (0 counts as 1):

    feature       f = log(q_max / (1 - q_max)) = -log(sum over the others of exp(l - l_max)),
                  clamped; a function of the prefix alone, never of the token drawn
    score         z = slope f + intercept_k            for draft position k
    probability   p = sigmoid(z)

Labels are censored: position k of a request has one if everything before it was accepted and k was
verified. y = 1 for an accepted draft, 0 for the first rejected one.

A round is ``refit_interval`` decode steps. Its sums, with w = p (1 - p) and r = y - p from the
scores as they were at draft time:

    a_k = sum w f^2   b_k = sum w f   c_k = sum w   g0_k = sum r f   g1_k = sum r   n_k = sum 1
    L_k = sum log(1 + e^z) - y z

The damped Newton step solves vLLM's arrowhead system (K + 1 unknowns, ridge on the diagonal):

    | a   b_0 ... b_K-1 | | ds   |   | g0   |        S  = a - sum b_k^2 / c_k
    | b_0 c_0           | | di_0 | = | g1_0 |   =>   ds = n / (n + D) (g0 - sum b_k g1_k / c_k) / S
    | ...         ...   | | ...  |   | ...  |      di_k = n_k / (n_k + D_k) (g1_k - b_k ds) / c_k
    | b_K-1      c_K-1  | |      |   |      |

D is the setting ``damping``; see *damping* below for when it is more.

What makes the step safe (upstream drops a step to a negative slope, and bounds none):

    zero          a step below slope 0 is shortened to reach 0; the intercepts are solved for the
                  step that the slope takes, which makes both the best with slope >= 0
    descent       q(d) = -G + C / 2, G = g.d, C = d'(X'WX)d, is the loss's quadratic model along
                  the step d. If it rises, the intercepts were damped more than the slope that they
                  must follow: they follow it undamped, di_k = n_k / (n_k + D_k) g1_k / c_k
                  - b_k ds / c_k, and q falls
    reach         R = the largest |ds f + di_k| of the round, at the smallest or the largest f of
                  each position. p (1 - p) changes by at most e^|x| when the logit moves by x, so
                      L(t d) - L(0) <= -t G + C (e^{tR} - 1 - tR) / R^2
                  which is least at t = log(1 + R G / C) / R. A step within the reach allowed is
                  taken in full, a longer one to that t, or to PROVEN_REACH / R if that is more.
                  Allowed is FIRST_REACH at first and LATER_REACH later: a full step (C <= G) is
                  sure to lower L only up to PROVEN_REACH, and mostly lowers it much beyond
    rates         if each position's acceptance rate alone predicts the round better than the
                  coefficients do, and than they will after the step, the rates become the
                  coefficients: slope 0, intercept_k = logit(rate_k)
    undo          the round's sums are also kept at the coefficients before the last step. If the
                  loss there is lower by more than chance, the step is undone, and the new step
                  starts from there with those sums: no round is lost. Chance is 1/2 nat for each
                  coefficient, which is what fitting it to a round costs on another, and CHANCE
                  standard deviations, sqrt(d'(X'WX)d) each, d the step in question. It is 0 where
                  damping was raised: labels that say little leave the older coefficients in
                  force. The new step's reach is limited to a quarter of the undone one's
    damping       where nearly all labels of a position are alike, n labels say so little that
                  upstream's damping follows chance: D_k = max(D, (125 / H_k - max(n_k, 500)) / 2)
                  from 100 labels on, H_k the entropy of the position's acceptance rate (see
                  ``rules``). It differs from D only for H_k < 1/4 and n_k < 125 / H_k

Non-finite features and scores never enter a sum; a non-finite step is not taken. State is O(K).
Upstream adds up all exponentials in float32 and subtracts the top token's 1, which leaves nothing
between f = 16 and the clamp; here the top token is left out of the sum.
Where none of these rules strikes, the coefficients are upstream's
(vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py, pull request 52228).

Rule: NumPy float64, and no state; :mod:`vllm_av.estimator.kernels` must agree with it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.estimator import rules
from vllm_av.estimator.settings import LOG_ODDS_CLAMP

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def features(logits: Floats, temperature: Floats, clamp: float = LOG_ODDS_CLAMP) -> Floats:
    """Log-odds of each row's top token.

    Args:
        logits: [rows, vocab], before temperature.
        temperature: [rows]; 0 counts as 1.
        clamp: the result lies within plus and minus this.

    Returns:
        [rows]; NaN for a row that is no distribution: a NaN, an infinity, or no finite logit.
    """
    raw = np.asarray(logits, np.float64)
    rows = np.arange(len(raw))
    place = raw.argmax(axis=1)  # of a NaN, where there is one
    top = raw[rows, place]
    with np.errstate(invalid="ignore", divide="ignore"):
        others = np.exp((raw - top[:, None]) / np.where(temperature > 0, temperature, 1.0)[:, None])
        others[rows, place] = 0.0
        feature = np.clip(-np.log(others.sum(axis=1)), -clamp, clamp)
    return np.where(np.isfinite(top), feature, np.nan)


def sigmoid(z: Floats) -> Floats:
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, small) / (1.0 + small))


@dataclass(frozen=True)
class Step:
    """A change of the coefficients.

    Attributes:
        slope: ds.
        intercepts: [K], di.
    """

    slope: float
    intercepts: Floats

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.slope) and np.isfinite(self.intercepts).all())


class Sums:
    """A round's sums at one set of coefficients; all [K]."""

    def __init__(self, num_positions: int) -> None:
        self.a, self.b, self.c, self.g0, self.g1, self.loss = np.zeros((6, num_positions))

    def add(self, feature: Floats, score: Floats, label: Floats, counts: Bools) -> None:
        """Rows [n, K], of which only those that ``counts`` enter."""
        small = np.exp(-np.abs(score))
        weight = np.where(counts, small / (1.0 + small) ** 2, 0.0)
        residual = np.where(counts, label - sigmoid(score), 0.0)
        loss = np.maximum(score, 0.0) + np.log(1.0 + small) - label * score
        self.a += (weight * feature**2).sum(axis=0)
        self.b += (weight * feature).sum(axis=0)
        self.c += weight.sum(axis=0)
        self.g0 += (residual * feature).sum(axis=0)
        self.g1 += residual.sum(axis=0)
        self.loss += np.where(counts, loss, 0.0).sum(axis=0)

    def along(self, step: Step) -> tuple[float, float]:
        """G and C of the head: the loss's slope and curvature along a step."""
        gradient = self.g0.sum() * step.slope + (self.g1 * step.intercepts).sum()
        curvature = (
            self.a.sum() * step.slope**2
            + 2.0 * step.slope * (self.b * step.intercepts).sum()
            + (self.c * step.intercepts**2).sum()
        )
        return float(gradient), max(float(curvature), 0.0)


def newton(sums: Sums, slope: float, share: Floats, slope_share: float, ridge: float) -> Step:
    """The damped step from ``slope``, which stays at least 0, with q not rising.

    Args:
        sums: at the coefficients that the step starts from.
        slope: the slope there.
        share: [K], n_k / (n_k + D_k).
        slope_share: n / (n + D).
        ridge: on the diagonal.
    """
    c = sums.c + ridge
    own = np.divide(sums.g1, c, out=np.zeros_like(c), where=c > 0)
    mean = np.divide(sums.b, c, out=np.zeros_like(c), where=c > 0)
    schur = sums.a.sum() + ridge - (sums.b * mean).sum()
    ds = slope_share * (sums.g0.sum() - (sums.b * own).sum()) / schur if schur > 0 else 0.0
    ds = max(float(ds), -slope)
    step = Step(ds, share * (own - mean * ds))
    gradient, curvature = sums.along(step)
    if gradient > curvature / 2.0:
        return step
    return Step(ds, share * own - mean * ds)


def reach_of(step: Step, lowest: Floats, highest: Floats) -> float:
    """R: the largest change of a logit of the round.

    Args:
        step: of the coefficients.
        lowest: [K], each position's smallest feature of the round; infinite where it had none.
        highest: [K], the largest.
    """
    seen = lowest <= highest
    ends = [
        np.abs(step.slope * end + step.intercepts[seen]) for end in (lowest[seen], highest[seen])
    ]
    return float(np.max(ends, initial=0.0))


def share_of(sums: Sums, step: Step, reach: float, allowed: float) -> tuple[float, float]:
    """How much of a step is taken, and the change of the round's loss that it promises.

    Args:
        sums: at the coefficients that the step starts from.
        step: finite or not.
        reach: R.
        allowed: the reach up to which a step is taken in full.

    Returns:
        t, and q(t d) for a full step or the bound on L(t d) - L(0) for a shorter one.
    """
    gradient, curvature = sums.along(step)
    if not step.finite or not np.isfinite(reach) or not gradient > curvature / 2.0:
        return 0.0, 0.0
    if reach <= allowed:
        return 1.0, curvature / 2.0 - gradient
    length = np.log(1.0 + min(reach * gradient / max(curvature, 1e-300), rules.FLAT))
    if allowed < rules.LATER_REACH:
        length = min(length, allowed)
    else:
        length = max(length, rules.PROVEN_REACH)
    length = min(length, reach)
    share = float(length / reach)
    bound = (np.exp(length) - 1.0 - length) / reach**2
    return share, float(curvature * bound - share * gradient)


def damping_of(given: float, labels: Any, entropy: Any) -> Floats:
    """D_k; ``labels`` and ``entropy`` (nats) may be arrays."""
    needed = rules.NATS_REMEMBERED / entropy - np.maximum(labels, rules.LABELS_REMEMBERED)
    return np.where(labels < rules.FEW_LABELS, given, np.maximum(given, needed / 2.0))


def rates_of(accepted: Floats, labels: Floats) -> Floats:
    """[K], the acceptance rates, each with one label more of the overall rate, so none 0 or 1."""
    overall = (accepted.sum() + 0.5) / (labels.sum() + 1.0)
    return np.asarray((accepted + overall) / (labels + 1.0))


def entropy_of(rate: Floats) -> Floats:
    """Nats a label."""
    return np.asarray(-(rate * np.log(rate) + (1.0 - rate) * np.log(1.0 - rate)))
