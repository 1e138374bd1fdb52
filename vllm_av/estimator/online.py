"""The online acceptance estimator: predicts while drafting, learns from what was verified.

Rule: buffers are written in place and never replaced (captured CUDA graphs read them), and nothing
waits for the device: the host decides on a refit by counting its own steps.

Per decode step: ``observe`` grades the previous step's drafts (and refits once a round), then
``predict`` scores each draft position as it is drafted.
"""

import torch

from vllm_av.estimator import kernels, rules
from vllm_av.estimator.settings import LOG_ODDS_CLAMP, EstimatorSettings

VOCAB_BLOCK = 1024


def _score(
    logits: torch.Tensor,
    idx_mapping: torch.Tensor,
    draft_step: torch.Tensor,
    temperature: torch.Tensor,
    out: torch.Tensor,
    clamp: float,
    learned: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None,
) -> None:
    """Two launches; ``learned`` is (features, scores, slope, intercepts)."""
    num_tokens, vocab_size = logits.shape
    num_blocks = -(-vocab_size // VOCAB_BLOCK)
    partials = torch.empty(num_tokens, 2, num_blocks, dtype=torch.float32, device=logits.device)
    kernels.partial_sums_kernel[(num_tokens, num_blocks)](
        partials,
        logits,
        logits.stride(0),
        idx_mapping,
        idx_mapping.stride(0),
        temperature,
        num_tokens,
        vocab_size,
        num_blocks,
        BLOCK=VOCAB_BLOCK,
    )
    features, scores, slope, intercepts = learned or (None, None, None, None)
    kernels.predict_kernel[(num_tokens,)](
        out,
        out.stride(0),
        features,
        scores,
        0 if features is None else features.stride(0),
        slope,
        intercepts,
        partials,
        logits,
        logits.stride(0),
        idx_mapping,
        idx_mapping.stride(0),
        temperature,
        draft_step,
        num_tokens,
        vocab_size,
        num_blocks,
        CLAMP=clamp,
        STEP_PER_TOKEN=draft_step.dim() > 0,
        NUM_STEPS=out.shape[1],
        LEARNS=learned is not None,
        BLOCK=VOCAB_BLOCK,
        PADDED_BLOCKS=kernels.next_power_of_2(num_blocks),
    )


def score_top_probability(
    logits: torch.Tensor,
    idx_mapping: torch.Tensor,
    draft_step: torch.Tensor,
    temperature: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """The drafter's own probability of its top token, after temperature: nothing is fitted.

    Args:
        logits: [num_tokens, vocab], before temperature.
        idx_mapping: [num_tokens], slot of the request; rows of -1 are left alone.
        draft_step: 0-d, the position of every row; or [num_tokens], each request has K rows.
        temperature: [slots] f32; 0 counts as 1.
        out: [num_reqs, K] f32, written at [row of the batch, step]; 1 where a row of logits is no
            distribution: a NaN, an infinity, or no finite logit.
    """
    _score(logits, idx_mapping, draft_step, temperature, out, LOG_ODDS_CLAMP, None)


class OnlineEstimator:
    """Acceptance probabilities per draft position, fitted while serving.

    Attributes:
        slope: [1] f32, in force.
        intercepts: [K] f32, in force.
        features: [slots, K] f32, of each slot's last draft.
        scores: [slots, K] f32, log-odds of acceptance as they were at draft time.
        refits: rounds closed, counted on the host.
    """

    def __init__(
        self,
        settings: EstimatorSettings,
        max_num_reqs: int,
        num_speculative_steps: int,
        device: torch.device,
    ) -> None:
        self.settings = settings
        self.num_speculative_steps = num_speculative_steps
        f32 = {"dtype": torch.float32, "device": device}
        f64 = {"dtype": torch.float64, "device": device}
        # First what is in force, then what was before the last step.
        self._slopes = torch.full((2,), settings.initial_slope, **f32)
        given = torch.tensor(settings.intercepts(num_speculative_steps), **f32)
        self._intercepts = given.repeat(2, 1)
        self.slope, self.intercepts = self._slopes[:1], self._intercepts[0]
        self.features = torch.zeros(max_num_reqs, num_speculative_steps, **f32)
        self.scores = torch.zeros_like(self.features)
        self._sums = torch.zeros(kernels.ROWS, num_speculative_steps, **f64)
        self._sums[kernels.LOWEST] = float("inf")
        self._sums[kernels.HIGHEST] = float("-inf")
        self._scalars = torch.zeros(kernels.SCALARS, **f64)
        self._scalars[kernels.REACH] = rules.FIRST_REACH
        self._steps = 0
        self.refits = 0

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Score each row; arguments as in :func:`score_top_probability`."""
        learned = (self.features, self.scores, self.slope, self.intercepts)
        clamp = float(self.settings.log_odds_clamp)
        _score(logits, idx_mapping, draft_step, temperature, out, clamp, learned)

    def add_request(self, slot: int) -> None:
        """A new request has the slot: what was scored there before is none of its drafts."""
        self.scores[slot].fill_(float("nan"))

    def observe(
        self,
        idx_mapping: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> None:
        """Learn from the drafts of the previous step.

        Args:
            idx_mapping: [num_reqs], slot of the request; -1 is ignored.
            num_sampled: [num_reqs] int, accepted drafts and the bonus token.
            num_rejected: [num_reqs] int, verified drafts that were not accepted.
            mask: [num_reqs] bool, True where the request may teach; None, all may.
        """
        num_reqs = idx_mapping.shape[0]
        # As many lanes as there are slots, however few requests: another number would compile.
        lanes = max(len(self.scores), num_reqs)
        kernels.observe_kernel[(self.num_speculative_steps,)](
            self._sums,
            self._slopes,
            self._intercepts,
            self.features,
            self.scores,
            self.features.stride(0),
            idx_mapping,
            num_sampled,
            num_rejected,
            mask,
            num_reqs,
            NUM_STEPS=self.num_speculative_steps,
            BLOCK=kernels.next_power_of_2(lanes),
        )
        self._steps += 1
        if self._steps < self.settings.refit_interval:
            return
        self._steps = 0
        self.refits += 1
        kernels.refit_kernel[(1,)](
            self._slopes,
            self._intercepts,
            self._sums,
            self._scalars,
            NUM_STEPS=self.num_speculative_steps,
            RIDGE=float(self.settings.ridge),
            DAMPING=float(self.settings.damping),
            BLOCK=kernels.next_power_of_2(self.num_speculative_steps),
            num_warps=1,
        )

    def warm_up(
        self, idx_mapping: torch.Tensor, num_sampled: torch.Tensor, num_rejected: torch.Tensor
    ) -> None:
        """Compile what :meth:`observe` and its refits run; arguments as there.

        A twin learns instead of this one, and is forgotten.
        """
        slots, steps = self.scores.shape
        twin = type(self)(self.settings, slots, steps, self.scores.device)
        for mask in (None, num_sampled > 0):
            twin._steps = self.settings.refit_interval - 1
            twin.observe(idx_mapping, num_sampled, num_rejected, mask)

    @property
    def state_kind(self) -> str:
        """What a state must have been learnt with."""
        return f"pooled_estimator 1, log-odds within {self.settings.log_odds_clamp:g}"

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """What a restart goes on from; the drafts of the slots are not of it."""
        return {
            "slopes": self._slopes,
            "intercepts": self._intercepts,
            "sums": self._sums,
            "scalars": self._scalars,
            "counters": torch.tensor([self._steps, self.refits]),
        }

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on from another one's :meth:`state_tensors`.

        Raises:
            ValueError: no estimator was ever in that state.
        """
        learnt = [tensors[name] for name in ("slopes", "intercepts", "scalars")]
        if not all(bool(each.isfinite().all()) for each in learnt):
            raise ValueError("its coefficients are not finite")
        steps, refits = tensors["counters"].tolist()
        if bool((tensors["slopes"] < 0).any()) or steps < 0 or refits < 0:
            raise ValueError("it has a negative slope or count")
        for name, own in self.state_tensors().items():
            own.copy_(tensors[name])
        # A round may be shorter now than it was.
        self._steps, self.refits = min(steps, self.settings.refit_interval - 1), refits

    def snapshot(self) -> dict[str, torch.Tensor]:
        """The state by name, in tensors of its own, which later steps leave alone.

        Made on the device without waiting for it: slope [1] and intercepts [K] f32; labels [K]
        f64, of this round so far; masked [K] f64, labels that the mask has kept out since the
        start; rates [K] f64, accepted shares of the last rounds, NaN before the first; refits,
        undone, restarts [1] f64: rounds closed, steps undone, steps to the rates.
        """
        sums, scalars = self._sums, self._scalars
        return {
            "slope": self.slope.clone(),
            "intercepts": self.intercepts.clone(),
            "labels": sums[kernels.LABELS].clone(),
            "masked": sums[kernels.MASKED].clone(),
            "rates": sums[kernels.RATE_ACCEPTED] / sums[kernels.RATE_LABELS],
            "refits": torch.full_like(scalars[:1], self.refits),
            "undone": scalars[kernels.UNDONE : kernels.UNDONE + 1].clone(),
            "restarts": scalars[kernels.RESTARTS : kernels.RESTARTS + 1].clone(),
        }
