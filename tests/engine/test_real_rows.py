"""The rows of which step costs are profiled, with ``core/profile-real-rows``.

Its operators for mixtures of experts skip no padding on the CPU, so the test asks what such a layer
would be told, in vLLM's forward context, and which tokens it would route.
"""

from typing import Any

import pytest
import torch

from tests.engine.harness import Engine

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


@pytest.fixture(autouse=True)
def fresh_variables() -> None:
    """vLLM reads its variables anew."""
    from vllm import envs

    envs.disable_envs_cache()


@pytest.mark.parametrize("value", [None, "1"])
def test_rows_are_profiled_as_requests_have_them(
    adaptive: Engine, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    seen = rows_profiled(adaptive)
    assert {len(tokens) for _, tokens in seen} == {1, 2, 4, 8, 16, 32, 48}
    assert not any(padding.any() for padding, _ in seen)
    vocabulary = adaptive.runner.vocab_size
    for _, tokens in seen:
        assert 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary
    assert all(tokens.unique().numel() > 40 for _, tokens in seen if len(tokens) == 48)


def test_rows_can_be_profiled_as_padding(adaptive: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    seen = rows_profiled(adaptive)
    assert {len(tokens) for _, tokens in seen} == {1, 2, 4, 8, 16, 32, 48}
    assert all(padding.all() for padding, _ in seen)
    assert not any(tokens.any() for _, tokens in seen)


def test_a_step_of_requests_is_no_padding_afterwards(
    adaptive: Engine, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    adaptive.runner.profile_adaptive_verification()
    adaptive.price(8 * 8.0)
    assert adaptive.greedy(prompts, batch=8) == expected


def test_compiled_graphs_do_not_depend_on_it() -> None:
    from vllm import envs

    assert getattr(envs, SWITCH) is True
    assert SWITCH not in envs.compile_factors()
