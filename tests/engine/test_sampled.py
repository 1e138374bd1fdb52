"""Sampled tokens follow the target's distribution, however the drafts are trimmed.

The same test must fail for a scorer that looks at the drawn token: with p = (.5, .5) and q = (.2,
.8), dropping the drafts with q(x) < .5 turns the output into (.4, .6).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from tests.engine import models
from tests.engine.harness import Engine, verified_share
from tests.engine.sampling import LENGTH, PROMPT, REQUESTS, cap_drafts, draw, p_value, tiny_engine


@pytest.fixture(scope="module")
def random_engine(random_pair: tuple[str, str]) -> Engine:
    return tiny_engine(random_pair)


@pytest.fixture(scope="module")
def constant_engine(constant_pair: tuple[str, str]) -> Engine:
    return tiny_engine(constant_pair, steps=1)


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


# The matrix has the scorers that are sound, at temperature 1.
@pytest.mark.parametrize(("temperature", "lossy"), [(0.3, False), (1.0, True)])
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
