"""A scorer that looks at what it decides on."""

import torch

from vllm_av.scorers.base import Scorer


class Looks(Scorer):
    """The probability of the drawn token: it looks at what it decides on."""

    needs_draft_logits = True
    needs_drawn_tokens = True

    def predict(self, logits, idx_mapping, draft_step, temperature, out, drawn_tokens):  # type: ignore[no-untyped-def]
        divisor = temperature[idx_mapping.clamp(min=0)]
        divisor = torch.where(divisor > 0, divisor, 1.0)
        q = (logits.float() / divisor[:, None]).softmax(-1)
        row = torch.arange(len(q))
        step = draft_step.expand(len(row))
        out[row, step] = q[row, drawn_tokens]
