"""What the user wrote of a scorer is what is in force; the matrix has each with each drafter."""

from typing import Any

import pytest
import torch

from tests.engine.sampling import tiny_engine
from vllm_av.estimator.settings import MIXED

PROMPTS = [[n % 8, 3 * n % 8, 5, (n * n) % 8] for n in range(3)]


@pytest.mark.parametrize(
    ("block", "settings"),
    [
        (None, (MIXED.refit_interval, MIXED.damping)),
        ({"scorer": "pooled_estimator"}, (100, 50.0)),  # vLLM's own
        ({"estimator": {"refit_interval": 30, "damping": 500.0}}, (30, 500.0)),
    ],
    ids=["nothing", "pooled", "numbers"],
)
def test_what_the_user_wrote_reached_the_estimator(
    block: dict[str, Any] | None, settings: tuple[int, float], random_pair: tuple[str, str]
) -> None:
    found = tiny_engine(random_pair, block=block).scorer.scorer.estimator.settings
    assert (found.refit_interval, found.damping) == settings


def test_the_top_probability_is_that_of_the_draft_logits(random_pair: tuple[str, str]) -> None:
    """The number that vLLM trims by, against the logits that vLLM drew from."""
    engine = tiny_engine(random_pair, block={"scorer": "max_probability"})
    assert engine.scorer.snapshot() == {}
    speculator = engine.runner.speculator
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    observe = speculator.observe_verification

    def see(idx_mapping: torch.Tensor, *arguments: Any, **named: Any) -> None:
        logits = speculator.draft_logits[idx_mapping]
        temperature = speculator.temperature[idx_mapping, None, None]
        rows = speculator.draft_token_confidence_probs[: len(idx_mapping)]
        seen.append(((logits / temperature).softmax(-1).amax(-1), rows.clone()))
        observe(idx_mapping, *arguments, **named)

    speculator.observe_verification = see
    from vllm import SamplingParams

    params = [SamplingParams(temperature=t, max_tokens=8, ignore_eos=True) for t in (0.4, 1.0, 2.0)]
    engine.generate(PROMPTS, params)
    assert len(seen) > 3
    for expected, rows in seen[1:]:  # before the first step nothing was drafted
        torch.testing.assert_close(rows, expected, atol=1e-5, rtol=0)
