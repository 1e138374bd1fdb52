"""The estimator for mixed traffic: predicts while drafting, learns from what was verified.

Rule: buffers are written in place and never replaced (captured CUDA graphs read them), and nothing
waits for the device: the host decides on a refit by counting its own steps.

Per decode step: ``observe`` grades the previous step's drafts (and refits when it is due), then
``predict`` scores each draft position as it is drafted.
"""

import torch

from vllm_av.estimator import kernels as softmax
from vllm_av.estimator.online import VOCAB_BLOCK
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.estimator.tempered import kernels, rules, scoring
from vllm_av.estimator.tempered.schedule import Schedule


class TemperedEstimator:
    """Acceptance probabilities per draft position and temperature, fitted while serving.

    Attributes:
        by_knot: [knots, 5] f32, in force, of :data:`rules.FEATURES`.
        intercepts: [K] f32, in force.
        features: [slots, K, 4] f32, of each slot's last draft: log-odds, margin, place among the
            knots, mean log-odds of the earlier drafts.
        scores: [slots, K] f32, log-odds of acceptance as they were at draft time.
        refits: rounds closed in this process, counted on the host; the first ones may have had too
            few labels.
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
        self._schedule = Schedule(settings.refit_interval)
        self.refits = 0
        steps, size = num_speculative_steps, kernels.SIZE
        f32 = {"dtype": torch.float32, "device": device}
        f64 = {"dtype": torch.float64, "device": device}
        knot = [float(settings.initial_slope)] * 2 + [0.0] * (rules.FEATURES - 2)
        start = knot * kernels.KNOTS + [float(each) for each in settings.intercepts(steps)]
        self._start = torch.tensor(start, **f64)
        self._coefficients = self._start.clone()
        self.by_knot = self._start[:size].float().view(kernels.KNOTS, rules.FEATURES)
        self.intercepts = self._start[size:].float()
        self.features = torch.zeros(max_num_reqs, steps, scoring.KEPT, **f32)
        self.scores = torch.zeros(max_num_reqs, steps, **f32)
        self._knots = torch.tensor(rules.KNOTS, **f32)
        labels = max(float(settings.damping), 1.0)
        self._precision = torch.tensor([labels * says for says in rules.LABEL_SAYS], **f64)
        self._sums = torch.zeros(kernels.KNOTS, steps, kernels.SUMS, **f64)
        self._curvature = torch.zeros(size, size, **f64)
        self._cross = torch.zeros(size, steps, **f64)
        self._own = torch.zeros(steps, **f64)
        self._gradient = torch.zeros(size + steps, **f64)
        self._labels = torch.zeros(size + steps, **f64)
        self._masked = torch.zeros(steps, **f64)
        self._refits = torch.zeros(1, **f64)

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Score each row.

        Args:
            logits: [num_tokens, vocab], before temperature.
            idx_mapping: [num_tokens], slot of the request; rows of -1 are left alone.
            draft_step: 0-d, the position of every row; or [num_tokens], each request has K rows.
            temperature: [slots] f32, of the requests.
            out: [num_reqs, K] f32, written at [row of the batch, step]; 1 where a row of logits is
                no distribution: a NaN, an infinity, or no finite logit.
        """
        num_tokens, vocab_size = logits.shape
        num_blocks = -(-vocab_size // VOCAB_BLOCK)
        partials = torch.empty(num_tokens, 2, num_blocks, dtype=torch.float32, device=logits.device)
        softmax.partial_sums_kernel[(num_tokens, num_blocks)](
            partials,
            logits,
            logits.stride(0),
            idx_mapping,
            idx_mapping.stride(0),
            None,
            num_tokens,
            vocab_size,
            num_blocks,
            BLOCK=VOCAB_BLOCK,
        )
        each = {"STEP_PER_TOKEN": draft_step.dim() > 0, "NUM_STEPS": self.num_speculative_steps}
        scoring.feature_kernel[(num_tokens,)](
            self.features,
            partials,
            logits,
            logits.stride(0),
            idx_mapping,
            idx_mapping.stride(0),
            draft_step,
            num_tokens,
            vocab_size,
            num_blocks,
            CLAMP=float(self.settings.log_odds_clamp),
            BLOCK=VOCAB_BLOCK,
            PADDED_BLOCKS=softmax.next_power_of_2(num_blocks),
            **each,
        )
        # A launch of its own: where a block is drafted at once, a row reads the earlier ones'.
        scoring.score_kernel[(num_tokens,)](
            out,
            out.stride(0),
            self.features,
            self.scores,
            self._knots,
            self.by_knot,
            self.intercepts,
            idx_mapping,
            idx_mapping.stride(0),
            temperature,
            draft_step,
            num_tokens,
            BLOCK=softmax.next_power_of_2(self.num_speculative_steps),
            **each,
        )

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
        steps = self.num_speculative_steps
        # As many lanes as there are slots, however few requests: another number would compile.
        lanes = max(len(self.scores), num_reqs)
        kernels.observe_kernel[(kernels.KNOTS, steps)](
            self._sums,
            self._masked,
            self.features,
            self.scores,
            idx_mapping,
            num_sampled,
            num_rejected,
            mask,
            num_reqs,
            NUM_STEPS=steps,
            BLOCK=softmax.next_power_of_2(lanes),
        )
        if not self._schedule.count():
            return
        self.refits += 1
        kernels.refit_kernel[(1,)](
            self.by_knot,
            self.intercepts,
            self._coefficients,
            self._start,
            self._labels,
            self._sums,
            self._curvature,
            self._cross,
            self._own,
            self._gradient,
            self._precision,
            self._refits,
            NUM_STEPS=steps,
            MEMORY=float(self.settings.memory),
            BLOCK=softmax.next_power_of_2(steps),
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
            twin._schedule.left = 1
            twin.observe(idx_mapping, num_sampled, num_rejected, mask)

    @property
    def decode_steps(self) -> int:
        """That were observed, counted on the host."""
        return self._schedule.steps

    @property
    def state_kind(self) -> str:
        """What a state must have been learnt with."""
        knots = ", ".join(f"{knot:g}" for knot in rules.KNOTS)
        clamp = f"{self.settings.log_odds_clamp:g}"
        return f"online_estimator 1, knots {knots}, log-odds within {clamp}"

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """What a restart goes on from, the labels of the present round included.

        The drafts of the slots are not of it, nor the start values and what they are worth: these
        are the settings' in force.
        """
        return {
            "coefficients": self._coefficients,
            "labels": self._labels,
            "sums": self._sums,
            "curvature": self._curvature,
            "cross": self._cross,
            "own": self._own,
            "gradient": self._gradient,
            "masked": self._masked,
            "refits": self._refits,
            "counters": torch.tensor([self._schedule.steps, self._schedule.left]),
        }

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on from another one's :meth:`state_tensors`.

        Raises:
            ValueError: no estimator was ever in that state.
        """
        if not all(bool(each.isfinite().all()) for each in tensors.values()):
            raise ValueError("not all of its numbers are finite")
        counts = ("labels", "own", "masked", "refits", "counters")
        if any(bool((tensors[name] < 0).any()) for name in counts):
            raise ValueError("it has a negative count")
        for name, own in self.state_tensors().items():
            own.copy_(tensors[name])
        self._schedule.resume(*tensors["counters"].tolist())
        size = kernels.SIZE
        self.by_knot.view(-1).copy_(self._coefficients[:size])
        self.intercepts.copy_(self._coefficients[size:])

    def snapshot(self) -> dict[str, torch.Tensor]:
        """The state by name, in tensors of its own, which later steps leave alone.

        Made on the device without waiting for it: knots [J] f32, temperatures; slopes [J, 4] f32,
        of log q, -log(1 - q), log(1 + margin) and before; levels [J] and intercepts [K] f32; labels
        [K] f64, so far, without those of the present round; masked [1] f64, labels that were not to
        teach; refits [1] f64, that moved the coefficients.
        """
        size = kernels.SIZE
        return {
            "knots": self._knots.clone(),
            "slopes": self.by_knot[:, : rules.FEATURES - 1].clone(),
            "levels": self.by_knot[:, rules.FEATURES - 1].clone(),
            "intercepts": self.intercepts.clone(),
            "labels": self._labels[size:].clone(),
            "masked": self._masked.sum(dim=0, keepdim=True),
            "refits": self._refits.clone(),
        }
