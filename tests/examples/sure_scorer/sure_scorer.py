"""A scorer of another package. With pyproject.toml beside it, this is all that it takes.

    p_i = exp(-H_i),  H_i = the entropy of the drafter's distribution at position i, in nats

The entropy is of the whole distribution and not of the token that was drawn, so the scorer is
prefix-measurable: the output stays exact however bad its predictions are.
"""

import torch

from vllm_av.scorers.base import Scorer, ScorerContext


class Sure(Scorer):
    """The inverse of the drafter's perplexity."""

    needs_draft_logits = True

    def __init__(self, context: ScorerContext) -> None:
        self.steps = context.num_speculative_steps

    def predict(self, logits, idx_mapping, draft_step, temperature, out):  # type: ignore[no-untyped-def]
        divisor = temperature[idx_mapping.clamp(min=0)]  # -1 is padding, whose rows nobody reads
        divisor = torch.where(divisor > 0, divisor, 1.0)  # 0 is greedy
        log_q = (logits.float() / divisor[:, None]).log_softmax(-1)
        entropy = -(log_q.exp() * log_q).nan_to_num(0.0).sum(-1)  # 0 log 0 = 0
        row = torch.arange(len(entropy), device=entropy.device)
        if draft_step.dim():  # each request has all its tokens in a row
            row = row // self.steps
        out[row, draft_step.expand(len(row))] = (-entropy).exp()
