"""Sampled tokens follow the target's distribution, however the drafts are trimmed.

20,000 requests a case, each with its own seed, against probabilities enumerated in float64. The
same test must fail for a scorer that looks at the drawn token: with p = (.5, .5) and q = (.2, .8),
dropping the drafts with q(x) < .5 turns the output into (.4, .6).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from tests.engine import models
from tests.engine.harness import Engine, Step, speculation, verified_share

DRAWS = 20_000
REQUESTS = 256  # at once
LENGTH = 3  # tokens of each request: one from its prompt, the others verified
PROMPT = [3]


def start(pair: tuple[str, str], steps: int) -> Engine:
    target, draft = pair
    return Engine(
        target,
        speculation(draft, "draft_model", adaptive=True, steps=steps),
        max_model_len=32,
        max_num_seqs=REQUESTS,
        max_num_batched_tokens=4 * REQUESTS * (1 + steps),
        kv_cache_memory_bytes=64 << 20,
        skip_tokenizer_init=True,
    )


@pytest.fixture(scope="module")
def random_engine(random_pair: tuple[str, str]) -> Engine:
    return start(random_pair, steps=3)


@pytest.fixture(scope="module")
def constant_engine(constant_pair: tuple[str, str]) -> Engine:
    return start(constant_pair, steps=1)


def cap_drafts(engine: Engine, drafts: int) -> None:
    """Let the budget of a full batch be ``drafts``: up to there a step costs the same."""
    free = REQUESTS + drafts  # every request has one more token to verify or to read
    curve = [(1, 1.0), (free, 1.0), (free + 1, 1e9), (engine.runner.max_num_tokens, 1e9)]
    engine.manager.set_cost_curves([(1, 0.0)], curve)


def draw(engine: Engine, temperature: float, length: int) -> tuple[np.ndarray, list[Step]]:
    """Tokens ``[DRAWS, length]`` and the verifications that they took."""
    from vllm import SamplingParams

    params = [
        SamplingParams(
            temperature=temperature, max_tokens=length, ignore_eos=True, detokenize=False, seed=seed
        )
        for seed in range(DRAWS)
    ]
    with engine.recorded() as steps:
        tokens = engine.generate([PROMPT] * DRAWS, params)
    return np.array(tokens), steps


def p_value(tokens: np.ndarray, probabilities: torch.Tensor) -> float:
    """Chi-square test of ``tokens`` ``[DRAWS, length]`` against a joint distribution.

    Outcomes that are expected fewer than 5 times are counted together.
    """
    index = np.ravel_multi_index(tuple(tokens.T), tuple(probabilities.shape))
    seen = np.bincount(index, minlength=probabilities.numel()).astype(float)
    expected = probabilities.flatten().numpy() * DRAWS
    rare = expected < 5
    seen, expected = (np.append(x[~rare], x[rare].sum()) for x in (seen, expected))
    if expected[-1] < 5:  # still rare together: with the least frequent of the others
        low = expected[:-1].argmin()
        for x in (seen, expected):
            x[low] += x[-1]
        seen, expected = seen[:-1], expected[:-1]
    return float(chisquare(seen, expected).pvalue)


@contextmanager
def lossy_scorer(engine: Engine) -> Iterator[None]:
    """Trim by the probability of the *drawn* token, which no scorer may look at."""
    speculator = engine.runner.speculator
    sample_draft: Callable[..., torch.Tensor] = speculator.sample_draft

    def wrapped(
        hidden_states: torch.Tensor,
        sample_src_positions: torch.Tensor,
        idx_mapping: torch.Tensor,
        temperature: torch.Tensor,
        seeds: torch.Tensor,
        draft_step: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> torch.Tensor:
        drawn = sample_draft(
            hidden_states, sample_src_positions, idx_mapping, temperature, seeds, draft_step,
            *args, **kwargs,
        )  # fmt: skip
        logits = speculator.draft_logits[idx_mapping, draft_step]
        q = (logits / temperature[idx_mapping, None]).softmax(-1)
        rows = torch.arange(len(drawn))
        speculator.draft_token_confidence_probs[rows, draft_step] = q[rows, drawn]
        return drawn

    speculator.sample_draft = wrapped
    try:
        yield
    finally:
        speculator.sample_draft = sample_draft


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_a_random_pair_follows_the_target(
    temperature: float, lossy: bool, random_engine: Engine, random_pair: tuple[str, str]
) -> None:
    cap_drafts(random_engine, drafts=300)
    with lossy_scorer(random_engine) if lossy else nullcontext():
        tokens, steps = draw(random_engine, temperature, LENGTH)
    assert 0.2 < verified_share(steps) < 0.8
    assert sum(step.ragged for step in steps) > len(steps) / 2
    p = p_value(tokens, models.joint(random_pair[0], PROMPT, LENGTH, temperature))
    print(f"temperature {temperature}, lossy {lossy}: p = {p:.3g}")
    assert (p < 1e-6) if lossy else (p > 0.001)


@pytest.mark.parametrize("lossy", [False, True])
def test_the_bias_of_dropping_unlikely_drafts(lossy: bool, constant_engine: Engine) -> None:
    """p = (.5, .5), q = (.2, .8); as many drafts are kept as have q(x) >= .5 on average."""
    engine = constant_engine
    cap_drafts(engine, drafts=round(0.8 * REQUESTS))
    with lossy_scorer(engine) if lossy else nullcontext():
        tokens, steps = draw(engine, temperature=1.0, length=2)
    assert verified_share(steps) == pytest.approx(0.8, abs=0.02)
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    p = p_value(tokens[:, 1:], half)
    frequency = (tokens[:, 1] == 1).mean()
    print(f"lossy {lossy}: p = {p:.3g}, second token {1 - frequency:.4f}/{frequency:.4f}")
    if lossy:
        assert p < 1e-6
        assert frequency == pytest.approx(0.6, abs=0.02)
    else:
        assert p > 0.001
