"""Sampling from tiny models, many requests at a time, and the test of what was sampled.

Rule: each request has its own seed; its tokens are held against probabilities enumerated in
float64. 20,000 requests a case, or fewer where there are many cases.
"""

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from scipy.stats import chisquare

from tests.engine.harness import Engine, Step, speculation

DRAWS = 20_000
REQUESTS = 256  # at once
LENGTH = 3  # tokens of each request: one from its prompt, the others verified
PROMPT = [3]
TINY_STEPS = 3  # drafts per request and step


def tiny_engine(
    pair: tuple[str, str],
    method: str = "draft_model",
    steps: int = TINY_STEPS,
    block: dict[str, Any] | None = None,
) -> Engine:
    """An engine for a ``(target, drafter)`` of :mod:`tests.engine.models`.

    ``block`` is its ``adaptive_verification_config``.
    """
    target, draft = pair
    return Engine(target, speculation(draft, method, True, steps, block), **tiny_changes(steps))


def tiny_changes(steps: int = TINY_STEPS) -> dict[str, Any]:
    """What the engine of a tiny model has other than the rest (see ``engine_arguments``)."""
    return {
        "max_model_len": 32,
        "max_num_seqs": REQUESTS,
        "max_num_batched_tokens": 4 * REQUESTS * (1 + steps),
        "kv_cache_memory_bytes": 64 << 20,
        "skip_tokenizer_init": True,
    }


def cap_drafts(engine: Engine, drafts: int, requests: int = REQUESTS) -> None:
    """Give a batch of ``requests`` room for ``drafts``: up to there a step costs the same."""
    free = requests + drafts  # every request has one more token to verify or to read
    curve = [(1, 1.0), (free, 1.0), (free + 1, 1e9), (engine.runner.max_num_tokens, 1e9)]
    engine.manager.set_cost_curves([(1, 0.0)], curve)


def draw(
    engine: Engine, temperature: float, length: int, draws: int = DRAWS
) -> tuple[np.ndarray, list[Step]]:
    """Tokens ``[draws, length]``, and the verifications that they took if any was adaptive."""
    from vllm import SamplingParams

    params = [
        SamplingParams(
            temperature=temperature, max_tokens=length, ignore_eos=True, detokenize=False, seed=seed
        )
        for seed in range(draws)
    ]
    recording = engine.recorded() if engine.adaptive else nullcontext([])
    with recording as steps:
        tokens = engine.generate([PROMPT] * draws, params)
    return np.array(tokens), steps


def p_value(tokens: np.ndarray, probabilities: torch.Tensor) -> float:
    """Chi-square test of ``tokens`` ``[n, length]`` against a joint distribution.

    Outcomes that are expected fewer than 5 times are counted together.
    """
    index = np.ravel_multi_index(tuple(tokens.T), tuple(probabilities.shape))
    seen = np.bincount(index, minlength=probabilities.numel()).astype(float)
    expected = probabilities.flatten().numpy() * len(tokens)
    rare = expected < 5
    seen, expected = (np.append(x[~rare], x[rare].sum()) for x in (seen, expected))
    if expected[-1] < 5:  # still rare together: with the least frequent of the others
        low = expected[:-1].argmin()
        for x in (seen, expected):
            x[low] += x[-1]
        seen, expected = seen[:-1], expected[:-1]
    return float(chisquare(seen, expected).pvalue)
