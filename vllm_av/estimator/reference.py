"""The estimator with its state, in NumPy: the same stream in, the same coefficients out.

Rule: float64 throughout, and each rule of :mod:`vllm_av.estimator.formula` in its plainest form;
:mod:`vllm_av.estimator.online` must come to the same coefficients within 1e-4.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.estimator import rules
from vllm_av.estimator.formula import (
    Bools,
    Floats,
    Step,
    Sums,
    damping_of,
    entropy_of,
    features,
    newton,
    rates_of,
    reach_of,
    share_of,
    sigmoid,
)
from vllm_av.estimator.settings import EstimatorSettings

Integers = NDArray[Any]


class ReferenceEstimator:
    """The estimator's calls on NumPy arrays; see :class:`vllm_av.estimator.online.OnlineEstimator`.

    Attributes:
        slope, intercepts: the coefficients in force; intercepts [K].
        features, scores: [slots, K], as they were at draft time.
        refits: rounds closed.
        undone: steps undone.
        restarts: steps to the rates.
        masked: [K], labels that the mask has kept out.
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
        self.masked = np.zeros(num_speculative_steps)
        self._steps = 0
        self._before = self.slope, self.intercepts
        self._allowed = rules.FIRST_REACH
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
        """Score each row of a draft step; 1 for a row that is no distribution."""
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
        score = self.scores[slots, step]
        out[batch, step] = np.where(np.isnan(found), 1.0, sigmoid(score))

    def add_request(self, slot: int) -> None:
        """A new request has the slot: what was scored there before is none of its drafts."""
        self.scores[slot] = np.nan

    def observe(
        self,
        idx_mapping: Integers,
        num_sampled: Integers,
        num_rejected: Integers,
        mask: Bools | None = None,
    ) -> None:
        """Learn from the drafts of the previous step, and refit once a round."""
        real = np.asarray(idx_mapping) >= 0
        slots = np.asarray(idx_mapping)[real]
        accepted = np.maximum(np.asarray(num_sampled)[real].astype(np.int64) - 1, 0)[:, None]
        verified = accepted + np.asarray(num_rejected)[real].astype(np.int64)[:, None]
        k = np.arange(self.num_speculative_steps)
        labelled = (k <= accepted) & (k < verified)
        if mask is not None:
            teaches = np.asarray(mask)[real, None]
            self.masked += (labelled & ~teaches).sum(axis=0)
            labelled &= teaches
        self.learn(self.features[slots], self.scores[slots], k < accepted, labelled)
        self._steps += 1
        if self._steps >= self.settings.refit_interval:
            self._steps = 0
            self.refit()

    def learn(
        self,
        feature: Floats,
        score: Floats,
        label: Bools | Floats,
        labelled: Bools,
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
        n, accepted = self._labels, self._accepted
        self._rate_labels = rules.RATE_MEMORY * self._rate_labels + n
        self._rate_accepted = rules.RATE_MEMORY * self._rate_accepted + accepted
        rate = rates_of(self._rate_accepted, self._rate_labels)
        entropy = entropy_of(rate)
        damping = damping_of(self.settings.damping, n, entropy)
        overall = (n * entropy).sum() / n.sum()
        slope_damping = float(damping_of(self.settings.damping, n.sum(), overall))

        sums = self._judge(slope_damping > self.settings.damping)
        shares = n / (n + damping), n.sum() / (n.sum() + slope_damping)
        step = newton(sums, self.slope, *shares, self.settings.ridge)
        reach = reach_of(step, self._lowest, self._highest)
        share, change = share_of(sums, step, reach, self._allowed)

        loss = float(sums.loss.sum())
        own = -(accepted * np.log(rate) + (n - accepted) * np.log(1.0 - rate)).sum()
        own += rules.RATES_SEE_LABELS * (1.0 + (n > 0).sum())
        if loss > own and loss + change > own:
            self.restarts += 1
            step, share = Step(-self.slope, np.log(rate / (1.0 - rate)) - self.intercepts), 1.0
            reach = reach_of(step, self._lowest, self._highest)
        self._last_reach = share * reach if share > 0.0 else 0.0
        self._allowed = min(2.0 * self._allowed, rules.LATER_REACH)
        self._before = self.slope, self.intercepts
        if share > 0.0:
            self.slope += share * step.slope
            self.intercepts = self.intercepts + share * step.intercepts

    def _judge(self, on_trial: bool) -> Sums:
        """Undo the last step or let it stand; the sums at the coefficients then in force."""
        slope, intercepts = self._before
        _, variance = self._now.along(Step(self.slope - slope, self.intercepts - intercepts))
        loss = float(self._past.loss.sum())
        worse = float(self._now.loss.sum()) - loss
        chance = 0.5 * (1.0 + (self._labels > 0).sum()) + rules.CHANCE * np.sqrt(variance)
        if worse > rules.TIE * loss and (on_trial or worse > chance):
            self.undone += 1
            self.slope, self.intercepts = slope, intercepts
            allowed = rules.REACH_AFTER_UNDO * min(self._allowed, self._last_reach)
            self._allowed = max(allowed, rules.LEAST_REACH)
            return self._past
        return self._now
