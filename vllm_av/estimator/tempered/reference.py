"""The estimator for mixed traffic with its state, in NumPy: the same stream, the same coefficients.

Rule: float64 throughout, dense matrices and the plainest form of
:mod:`vllm_av.estimator.tempered.formula`; :mod:`vllm_av.estimator.tempered.online` must come to the
same coefficients within 1e-4.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av.estimator.formula import features as log_odds_of
from vllm_av.estimator.formula import sigmoid
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.estimator.tempered import rules
from vllm_av.estimator.tempered.formula import (
    Floats,
    design,
    earlier,
    features,
    margins,
    places,
    prior,
    weights,
)
from vllm_av.estimator.tempered.schedule import Schedule

Integers = NDArray[Any]
Bools = NDArray[np.bool_]
_KNOTS = len(rules.KNOTS)


class TemperedReference:
    """The estimator's calls on NumPy arrays; see
    :class:`vllm_av.estimator.tempered.online.TemperedEstimator`.

    Attributes:
        coefficients: [5 J + K] in force: for each knot those of :data:`rules.FEATURES`, then the
            intercepts of the positions.
        labels: [5 J + K], labels that each has had so far.
        refits: so far.
        masked: labels that were not allowed to teach.
    """

    def __init__(
        self, settings: EstimatorSettings, max_num_reqs: int, num_speculative_steps: int
    ) -> None:
        self.settings = settings
        self.num_speculative_steps = num_speculative_steps
        knot = [settings.initial_slope] * 2 + [0.0] * (rules.FEATURES - 2)
        self.coefficients = np.array(knot * _KNOTS + [*settings.intercepts(num_speculative_steps)])
        self.start = self.coefficients.copy()
        self.labels = np.zeros_like(self.start)
        self.refits = self.masked = 0
        size = len(self.start)
        self._curvature, self._gradient = np.zeros((size, size)), np.zeros(size)
        self._round = np.zeros_like(self.start)
        self._schedule = Schedule(settings.refit_interval)
        shape = (max_num_reqs, num_speculative_steps)
        self.features, self.scores = np.zeros((*shape, 3)), np.zeros(shape)

    # -- what vLLM calls

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
        log_odds = log_odds_of(logits[rows], np.ones(len(rows)), self.settings.log_odds_clamp)
        margin = np.minimum(margins(logits[rows]), self.settings.log_odds_clamp)
        place = places(np.asarray(temperature, np.float64)[slots])
        self.features[slots, step] = np.stack([log_odds, margin, place], axis=1)
        before = earlier(self.features[slots, :, 0])[np.arange(len(slots)), step]
        score = self._scores(log_odds, margin, before, place, step)
        self.scores[slots, step] = score
        out[batch, step] = np.where(np.isfinite(score), sigmoid(np.nan_to_num(score)), 1.0)

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
        """Learn from the drafts of the previous step."""
        real = np.asarray(idx_mapping) >= 0
        slots = np.asarray(idx_mapping)[real]
        accepted = np.maximum(np.asarray(num_sampled)[real].astype(np.int64) - 1, 0)[:, None]
        verified = accepted + np.asarray(num_rejected)[real].astype(np.int64)[:, None]
        k = np.arange(self.num_speculative_steps)
        labelled = (k <= accepted) & (k < verified) & np.isfinite(self.scores[slots])
        if mask is not None:
            teaches = labelled & mask[real][:, None]
            self.masked += int(labelled.sum() - teaches.sum())
            labelled = teaches
        row, position = np.nonzero(labelled)
        log_odds, margin, place = self.features[slots[row], position].T
        self.learn(
            log_odds,
            margin,
            earlier(self.features[slots, :, 0])[row, position],
            place,
            position,
            (k < accepted)[row, position],
            self.scores[slots[row], position],
        )
        self.pass_steps(1)

    # -- the same on rows

    def score(
        self,
        log_odds: Floats,
        margin: Floats,
        before: Floats,
        temperature: Floats,
        position: Integers,
    ) -> Floats:
        """[n] log-odds of acceptance."""
        return self._scores(log_odds, margin, before, places(temperature), position)

    def _scores(
        self,
        log_odds: Floats,
        margin: Floats,
        before: Floats,
        place: Floats,
        position: Integers,
    ) -> Floats:
        size = _KNOTS * rules.FEATURES
        by_knot = self.coefficients[:size].reshape(_KNOTS, rules.FEATURES)
        at = np.stack([np.interp(place, np.arange(_KNOTS), one) for one in by_knot.T], axis=-1)
        found = (features(log_odds, margin, before) * at).sum(axis=-1)
        return np.asarray(found + self.coefficients[size:][position])

    def learn(
        self,
        log_odds: Floats,
        margin: Floats,
        before: Floats,
        place: Floats,
        position: Integers,
        label: Bools,
        score: Floats,
    ) -> None:
        """Add labels to the round, all arguments [n]; ``score`` as it was at draft time."""
        if not len(score):
            return
        residual = label - sigmoid(score)
        found = features(log_odds, margin, before)
        x = design(found, place, position, self.num_speculative_steps)
        self._curvature += (x * weights(score, residual)[:, None]).T @ x
        self._gradient += residual @ x
        size = _KNOTS * rules.FEATURES
        shares = x[:, rules.FEATURES - 1 : size : rules.FEATURES].sum(axis=0)
        self._round[:size] += np.repeat(shares, rules.FEATURES)
        self._round[size:] += x[:, size:].sum(axis=0)

    def steps_to_refit(self) -> int:
        """Decode steps until the next refit."""
        return self._schedule.left

    def pass_steps(self, steps: int) -> None:
        """Count decode steps, no more than to the next refit, which is made when it is due."""
        if self._schedule.count(steps):
            self.refit()

    def refit(self) -> None:
        """Move the coefficients, unless there were too few labels so far."""
        own = slice(_KNOTS * rules.FEATURES, None)
        if (self.labels + self._round)[own].sum() < rules.FEWEST_LABELS:
            return
        self.refits += 1
        self.labels += self._round
        held = prior(self.labels, self.settings.damping, self.num_speculative_steps)
        pull = self._gradient - held @ (self.coefficients - self.start)
        step = np.linalg.solve(self._curvature + held, pull)
        if not np.isfinite(step).all():  # see the kernel
            step = np.zeros_like(step)
            self._curvature, self._gradient = np.zeros_like(held), np.zeros_like(pull)
        self.coefficients = self.coefficients + step
        self._gradient -= self._curvature @ step
        keeps = np.exp(-self._round / (2.0 * self.settings.memory))
        self._curvature = keeps[:, None] * self._curvature * keeps
        self._gradient = keeps * self._gradient
        self._round[:] = 0.0
