"""The rows of which step costs are profiled, with ``core/profile-real-rows``.

Its operators for mixtures of experts skip no padding on the CPU, so the test asks what such a layer
would be told, in vLLM's forward context, and which tokens it would route.
"""

from typing import Any

import pytest
import torch

from tests.engine import models
from tests.engine.harness import Engine
from tests.engine.sampling import REQUESTS, TINY_STEPS, tiny_engine

PROMPTS = [[n % 8, 3 * n % 8, 5, (n * n) % 8] for n in range(8)]
SIZES = {1 << i for i in range((REQUESTS * (TINY_STEPS + 1)).bit_length())}
SWITCH = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS"

Row = tuple[torch.Tensor, torch.Tensor]  # whether it is padding, and its token


def rows_profiled(engine: Engine) -> list[Row]:
    """Padding mask and token ids of each forward pass of the target in a profile."""
    from vllm.forward_context import get_forward_context

    seen: list[Row] = []

    def see(_: Any, arguments: Any, named: dict[str, Any]) -> None:
        padding = get_forward_context().is_padding
        seen.append((padding.clone(), named["input_ids"].clone()))

    hook = engine.runner.model.register_forward_pre_hook(see, with_kwargs=True)
    try:
        engine.runner.profile_adaptive_verification()
    finally:
        hook.remove()
    return seen


@pytest.fixture(scope="module")
def engine(random_pair: tuple[str, str]) -> Engine:
    return tiny_engine(random_pair)


@pytest.fixture(autouse=True)
def fresh_variables() -> None:
    """vLLM reads its variables anew."""
    from vllm import envs

    envs.disable_envs_cache()


@pytest.mark.parametrize("value", [None, "1"])
def test_rows_are_profiled_as_requests_have_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    seen = rows_profiled(engine)
    assert {len(tokens) for _, tokens in seen} == SIZES
    assert not any(padding.any() for padding, _ in seen)
    for _, tokens in seen:
        assert 0 <= int(tokens.min()) <= int(tokens.max()) < models.VOCABULARY
    assert all(len(tokens.unique()) == models.VOCABULARY for _, tokens in seen if len(tokens) > 200)


def test_rows_can_be_profiled_as_padding(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    seen = rows_profiled(engine)
    assert {len(tokens) for _, tokens in seen} == SIZES
    assert all(padding.all() for padding, _ in seen)
    assert not any(tokens.any() for _, tokens in seen)


def test_a_step_of_requests_is_no_padding_afterwards(
    engine: Engine, random_pair: tuple[str, str]
) -> None:
    engine.runner.profile_adaptive_verification()
    engine.price(8 * 8.0)
    tokens = engine.greedy(PROMPTS, batch=8)
    assert tokens == [models.greedy(random_pair[0], prompt) for prompt in PROMPTS]


def test_compiled_graphs_do_not_depend_on_it() -> None:
    from vllm import envs

    assert getattr(envs, SWITCH) is True
    assert SWITCH not in envs.compile_factors()
