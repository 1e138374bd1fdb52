r"""The online acceptance estimator in NumPy, float64: what the Triton kernels must agree with.

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
                  which is least at t = log(1 + R G / C) / R. A step of R <= FULL_STEP_REACH is
                  taken in full; a longer one, to that t
    rates         if each position's acceptance rate alone predicts the round better than the
                  coefficients do, and than they will after the step, the rates become the
                  coefficients: slope 0, intercept_k = logit(rate_k)
    undo          the round's sums are also kept at the coefficients before the last step. If the
                  loss there is lower by more than chance, the step is undone, and the new step
                  starts from there with those sums: no round is lost. Chance is CHANCE standard
                  deviations, sqrt(d'(X'WX)d) each, d the step in question. It is 0 where damping
                  was raised: labels that say little leave the older coefficients in force. The
                  new step's reach is limited to a quarter of the undone one's, see ``rules``
    damping       where nearly all labels of a position are alike, n labels say so little that
                  upstream's damping follows chance: D_k = max(D, (125 / H_k - max(n_k, 500)) / 2),
                  H_k the entropy of the position's acceptance rate (see ``rules``). It differs
                  from D only for H_k < 1/4 and rounds of less than 125 / H_k labels

Non-finite features and scores never enter a sum; a non-finite step is not taken. State is O(K).
Where none of these rules strikes, the coefficients are upstream's
(vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py, pull request 52228).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.estimator import rules
from vllm_av.estimator.settings import LOG_ODDS_CLAMP, EstimatorSettings

Floats = NDArray[np.float64]
Integers = NDArray[Any]


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

    def add(self, feature: Floats, score: Floats, label: Floats, counts: NDArray[np.bool_]) -> None:
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


class ReferenceEstimator:
    """The estimator's calls on NumPy arrays; see :class:`vllm_av.estimator.online.OnlineEstimator`.

    Attributes:
        slope, intercepts: the coefficients in force; intercepts [K].
        features, scores: [slots, K], as they were at draft time.
        refits: rounds closed.
        undone: steps undone.
        restarts: steps to the rates.
    """

    def __init__(
        self, settings: EstimatorSettings, max_num_reqs: int, num_speculative_steps: int
    ) -> None:
        self.settings = settings
        self.num_speculative_steps = num_speculative_steps
        self.slope = float(settings.initial_slope)
        self.intercepts = np.array(settings.intercepts(num_speculative_steps))
        self.features = np.zeros((max_num_reqs, num_speculative_steps))
        self.scores = np.zeros((max_num_reqs, num_speculative_steps))
        self.refits = self.undone = self.restarts = 0
        self._steps = 0
        self._before = self.slope, self.intercepts
        self._reach = rules.FULL_STEP_REACH
        self._last_reach = 0.0
        self._rate_labels, self._rate_accepted = np.zeros((2, num_speculative_steps))
        self._begin()

    def _begin(self) -> None:
        k = self.num_speculative_steps
        self._now, self._past = Sums(k), Sums(k)
        self._labels, self._accepted = np.zeros((2, k))
        self._lowest, self._highest = np.full(k, np.inf), np.full(k, -np.inf)

    def predict(
        self,
        logits: Floats,
        idx_mapping: Integers,
        draft_step: Integers,
        temperature: Floats,
        out: Floats,
    ) -> None:
        """Score each row of a draft step."""
        slots = np.asarray(idx_mapping)
        rows = np.flatnonzero(slots >= 0)
        slots = slots[rows]
        if draft_step.ndim:
            step, batch = draft_step[rows], rows // self.num_speculative_steps
        else:
            step, batch = np.full(len(rows), int(draft_step)), rows
        found = features(logits[rows], temperature[slots], self.settings.log_odds_clamp)
        self.features[slots, step] = found
        self.scores[slots, step] = self.slope * found + self.intercepts[step]
        out[batch, step] = sigmoid(self.scores[slots, step])

    def observe(
        self,
        idx_mapping: Integers,
        num_sampled: Integers,
        num_rejected: Integers,
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Learn from the drafts of the previous step, and refit once a round."""
        teaches = np.asarray(idx_mapping) >= 0
        if mask is not None:
            teaches = teaches & mask
        slots = np.asarray(idx_mapping)[teaches]
        accepted = np.maximum(np.asarray(num_sampled)[teaches].astype(np.int64) - 1, 0)[:, None]
        verified = accepted + np.asarray(num_rejected)[teaches].astype(np.int64)[:, None]
        k = np.arange(self.num_speculative_steps)
        self.learn(
            self.features[slots], self.scores[slots], k < accepted, (k <= accepted) & (k < verified)
        )
        self._steps += 1
        if self._steps >= self.settings.refit_interval:
            self._steps = 0
            self.refit()

    def learn(
        self,
        feature: Floats,
        score: Floats,
        label: NDArray[np.bool_] | Floats,
        labelled: NDArray[np.bool_],
    ) -> None:
        """Add rows to the round.

        Args:
            feature: [n, K].
            score: [n, K], as it was at draft time.
            label: [n, K], whether the draft was accepted.
            labelled: [n, K], whether ``label`` is known.
        """
        counts = labelled & np.isfinite(feature) & np.isfinite(score)
        feature, score = np.where(counts, feature, 0.0), np.where(counts, score, 0.0)
        label = label.astype(np.float64)
        self._now.add(feature, score, label, counts)
        slope, intercepts = self._before
        self._past.add(feature, slope * feature + intercepts, label, counts)
        self._labels += counts.sum(axis=0)
        self._accepted += (counts * label).sum(axis=0)
        if len(feature):
            inf = np.inf
            self._lowest = np.minimum(self._lowest, np.where(counts, feature, inf).min(axis=0))
            self._highest = np.maximum(self._highest, np.where(counts, feature, -inf).max(axis=0))

    # -- the step

    def refit(self) -> None:
        """Close the round."""
        self.refits += 1
        if self._labels.sum() > 0:
            self._refit()
        self._begin()

    def _refit(self) -> None:
        n = self._labels
        self._rate_labels = rules.RATE_MEMORY * self._rate_labels + n
        self._rate_accepted = rules.RATE_MEMORY * self._rate_accepted + self._accepted
        rate = self._rates(1.0)
        cautious = self._rates(rules.CAUTIOUS_LABELS)
        entropy = -(cautious * np.log(cautious) + (1.0 - cautious) * np.log(1.0 - cautious))
        damping = self._damping(n, entropy)
        slope_damping = float(self._damping(n.sum(), (n * entropy).sum() / n.sum()))

        sums = self._judge(slope_damping > self.settings.damping)
        step = self._newton(sums, n / (n + damping), n.sum() / (n.sum() + slope_damping))
        reach = self._reach_of(step)
        share, change = self._share(sums, step, reach)

        loss = float(sums.loss.sum())
        own = -(self._accepted * np.log(rate) + (n - self._accepted) * np.log(1.0 - rate)).sum()
        own += rules.RATES_SEE_LABELS * (1.0 + (n > 0).sum())
        if loss > own and loss + change > own:
            self.restarts += 1
            step, share = Step(-self.slope, np.log(rate / (1.0 - rate)) - self.intercepts), 1.0
            reach = self._reach_of(step)
        self._last_reach = share * reach
        self._before = self.slope, self.intercepts
        if share > 0.0:
            self.slope += share * step.slope
            self.intercepts = self.intercepts + share * step.intercepts

    def _rates(self, labels: float) -> Floats:
        """[K], each position's acceptance rate with so many labels more of the overall rate."""
        overall = (self._rate_accepted.sum() + 0.5) / (self._rate_labels.sum() + 1.0)
        return np.asarray((self._rate_accepted + labels * overall) / (self._rate_labels + labels))

    def _damping(self, n: Any, entropy: Any) -> Floats:
        """D_k of the head."""
        needed = rules.NATS_REMEMBERED / entropy - np.maximum(n, rules.LABELS_REMEMBERED)
        return np.asarray(np.maximum(self.settings.damping, needed / 2.0))

    def _judge(self, on_trial: bool) -> Sums:
        """Undo the last step or let it stand; the sums at the coefficients then in force."""
        slope, intercepts = self._before
        _, variance = self._now.along(Step(self.slope - slope, self.intercepts - intercepts))
        loss = float(self._past.loss.sum())
        worse = float(self._now.loss.sum()) - loss
        chance = 0.0 if on_trial else rules.CHANCE**2 * variance
        if worse > rules.TIE * loss and worse**2 > chance:
            self.undone += 1
            self.slope, self.intercepts = slope, intercepts
            reach = rules.REACH_AFTER_UNDO * min(self._reach, self._last_reach)
            self._reach = max(reach, rules.LEAST_REACH)
            return self._past
        self._reach = min(2.0 * self._reach, rules.FULL_STEP_REACH)
        return self._now

    def _newton(self, sums: Sums, share: Floats, slope_share: float) -> Step:
        """The damped step of the head, with slope >= 0 and the quadratic model not rising."""
        ridge = self.settings.ridge
        c = sums.c + ridge
        own = np.divide(sums.g1, c, out=np.zeros_like(c), where=c > 0)
        mean = np.divide(sums.b, c, out=np.zeros_like(c), where=c > 0)
        schur = sums.a.sum() + ridge - (sums.b * mean).sum()
        ds = slope_share * (sums.g0.sum() - (sums.b * own).sum()) / schur if schur > 0 else 0.0
        ds = max(ds, -self.slope)
        step = Step(ds, share * (own - mean * ds))
        gradient, curvature = sums.along(step)
        if gradient > curvature / 2.0:
            return step
        return Step(ds, share * own - mean * ds)

    def _reach_of(self, step: Step) -> float:
        """R of the head."""
        seen = self._labels > 0
        ends = [
            np.abs(step.slope * end + step.intercepts)[seen].max()
            for end in (self._lowest, self._highest)
        ]
        return float(max(ends))

    def _share(self, sums: Sums, step: Step, reach: float) -> tuple[float, float]:
        """How much of a step is taken, and the change of the round's loss that is expected."""
        gradient, curvature = sums.along(step)
        if not step.finite or not np.isfinite(reach) or gradient <= curvature / 2.0:
            return 0.0, 0.0
        if reach <= self._reach:
            return 1.0, curvature / 2.0 - gradient
        length = np.log(1.0 + min(reach * gradient / max(curvature, 1e-300), rules.FLAT))
        if self._reach < rules.FULL_STEP_REACH:
            length = min(length, self._reach)
        length = min(length, reach)
        share = float(length / reach)
        bound = np.exp(length) - 1.0 - length
        return share, float(curvature * bound / reach**2 - share * gradient)
