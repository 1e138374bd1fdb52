"""What a trace keeps of the drafter's distribution, computed where the logits are.

With ``d = logits - top``, ``rest = sum exp(d)`` over all but the top token and ``Z = 1 + rest``:

* log-odds of the top token: ``-log(rest)``
* entropy: ``log Z - sum(d exp d) / Z``
* margin: ``-d`` of the second-best token
* log q of the drawn token: ``d[drawn] - log Z``

and the same with ``d / temperature``. The sums leave the top token out, so that nothing cancels
where it has nearly all the mass.

Rule: float32, no value is read by the host and no shape depends on one, so that a CUDA graph can
hold it. Rows that are no distribution (NaN, an infinite logit, all minus infinity) give NaN.
"""

import torch

from vllm_av.replay.columns import CLAMP, LARGEST

FEATURES = (
    "log_odds", "log_odds_scaled", "entropy", "entropy_scaled", "margin", "margin_scaled",
    "log_q_drawn",
)  # fmt: skip
"""The columns of what :func:`draft_features` returns, by their names in a trace."""

_FAR = -1e30  # exp() of it is 0 at every temperature, and its product with 0 is no NaN
_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 25}
"""Logits that are worked on at once: what stays in a core's cache; on a GPU, little memory."""


def draft_features(
    logits: torch.Tensor, temperature: torch.Tensor, drawn: torch.Tensor
) -> torch.Tensor:
    """The features of each row.

    Args:
        logits: float ``[n, vocabulary]``, before temperature.
        temperature: float32 ``[n]``, 0 counts as 1.
        drawn: int ``[n]``, the column of the token that was drawn.

    Returns:
        float32 ``[n, 7]``, in the order of :data:`FEATURES`.
    """
    scale = torch.where(temperature > 0, temperature, 1.0)[:, None]
    drawn = drawn.long()[:, None]
    rows = max(1, _ELEMENTS.get(logits.device.type, _ELEMENTS["cuda"]) // logits.shape[1])
    parts = [
        _features(logits[i : i + rows], scale[i : i + rows], drawn[i : i + rows])
        for i in range(0, len(logits), rows)
    ]
    return torch.cat(parts) if parts else logits.new_zeros(0, len(FEATURES), dtype=torch.float32)


def _features(logits: torch.Tensor, scale: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    below = logits.float()
    top = below.amax(1, keepdim=True)
    below = (below - top).clamp_(min=_FAR)
    of_drawn = below.gather(1, drawn)
    # All that tie for the top are taken out, and all but one are added again. (Finding one of them
    # would be an argmax, which takes as long as all else here.)
    tops = below == 0
    others = tops.sum(1, keepdim=True) - 1
    below.masked_fill_(tops, _FAR)
    second = below.amax(1, keepdim=True).masked_fill(others > 0, 0.0)
    columns = []
    for divisor in (torch.ones_like(scale), scale):
        below.div_(divisor)
        weights = below.exp()
        rest = weights.sum(1, keepdim=True) + others
        log_z = rest.log1p()
        entropy = log_z - torch.linalg.vecdot(weights, below)[:, None] / (1 + rest)
        columns += [
            (-rest.log()).clamp(-CLAMP, CLAMP),
            entropy,
            (-second / divisor).clamp(max=LARGEST),
        ]
    drawn_scaled = (of_drawn / scale - log_z).clamp(min=-LARGEST)
    log_odds, entropy, margin, log_odds_scaled, entropy_scaled, margin_scaled = columns
    # NaN where the top is infinite, which no other term would be where it was taken out; else 0.
    return (top - top) + torch.cat(
        [log_odds, log_odds_scaled, entropy, entropy_scaled, margin, margin_scaled, drawn_scaled],
        dim=1,
    )
