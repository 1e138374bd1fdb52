"""What the ``core`` patches change, asked of vLLM itself; without them each of these fails."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine import models
from tests.engine.drafters import block
from tests.engine.harness import Engine, logged_by
from tests.engine.sampling import TINY_STEPS, cap_drafts, tiny_changes, tiny_engine
from vllm_av.errors import RefusedError

PROMPTS = [[n % 8, 3 * n % 8, 5, (n * n) % 8] for n in range(8)]
MANAGER = "vllm.v1.worker.gpu.spec_decode.adaptive_verification"


def config(target: str, spec: dict[str, Any]) -> Any:
    """vLLM's whole config, made of the arguments of an engine and checked; nothing is loaded."""
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=target, speculative_config=spec, enforce_eager=True, dtype="float32", **tiny_changes()
    ).create_engine_config()


def xpress(folder: Path) -> str:
    draft = Path(block.dspark(folder).draft)
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps(config | {"architectures": ["Qwen3XPressModel"]}))
    return str(draft)


WITHOUT_ESTIMATES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "ngram": lambda _: {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3},
    "extract_hidden_states": lambda _: {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [0]}},
    },
    "xpress": lambda folder: {
        "method": "dflash",
        "model": xpress(folder / "xpress"),
        "num_speculative_tokens": 3,
    },
}


@pytest.mark.parametrize("method", WITHOUT_ESTIMATES)
def test_a_method_without_estimates_is_refused_at_config_time(
    method: str, tmp_path: Path, headless: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.config import adaptive_verification_check
    from vllm.config.speculative import SpeculativeConfig

    if method == "xpress" and not hasattr(SpeculativeConfig, "is_xpress"):
        pytest.skip("this vLLM has no XPress")
    spec = WITHOUT_ESTIMATES[method](tmp_path)
    assert config(headless[0], spec).speculative_config is not None
    spec["enable_adaptive_verification"] = True
    with pytest.raises(RefusedError, match="AV-CHECK-DRAFTER"):
        config(headless[0], spec)
    # And vLLM by itself.
    monkeypatch.setattr(adaptive_verification_check, "_checker", None)
    with pytest.raises(ValueError, match=r"which (method=|XPress).* does not make"):
        config(headless[0], spec)


@pytest.fixture(scope="module")
def engine(random_pair: tuple[str, str]) -> Engine:
    return tiny_engine(random_pair, block={"scorer": "max_probability"})


def test_an_estimate_that_is_no_number_costs_nobody_else_a_draft(
    engine: Engine, random_pair: tuple[str, str]
) -> None:
    """Among eight requests, one has NaN for every draft; the budget has room for all drafts."""
    scorer = engine.scorer.scorer
    predict = scorer.predict
    slots: list[int] = []

    def spoilt(
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        predict(logits, idx_mapping, draft_step, temperature, out)
        slots[:] = slots or [int(idx_mapping[3])]
        out[: len(idx_mapping), draft_step][idx_mapping == slots[0]] = torch.nan

    scorer.predict = spoilt
    try:
        with engine.kept_cost_tables(), logged_by(MANAGER) as records, engine.recorded() as steps:
            cap_drafts(engine, 8 * TINY_STEPS, requests=8)
            tokens = engine.greedy(PROMPTS, batch=8)
    finally:
        scorer.predict = predict
    assert tokens == [models.greedy(random_pair[0], prompt) for prompt in PROMPTS]
    assert len(steps) > 5
    assert all(step.admitted == step.scheduled for step in steps)
    warnings = [r.getMessage() for r in records if "not finite" in r.getMessage()]
    assert len(warnings) == 1  # for all the steps


class _Fixed:
    """Keeps two drafts of the first request of a batch that has any, and no other."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []

    def choose(self, inputs: Any) -> int:
        self.inputs.append(inputs)
        return min(2, inputs.max_draft_budget)

    def assign(
        self,
        confidence_probs: torch.Tensor,
        idx_mapping: torch.Tensor,
        capacities: torch.Tensor,
        draft_budget: int,
    ) -> None:
        first = (capacities >= draft_budget).int().argmax()
        capacities.zero_()
        capacities[first] = draft_budget

    def load_cost_curves(self, capture_sizes: list[int]) -> None:
        """None is known."""

    def save_cost_curves(self, capture_sizes: list[int], curves: Any) -> None:
        """Nor kept."""


def test_a_registered_budget_policy_decides(
    random_pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.worker.gpu.spec_decode import draft_budget

    policies: list[_Fixed] = []

    def factory(vllm_config: Any, device: torch.device) -> _Fixed:
        assert device.type == "cpu"
        assert vllm_config.speculative_config.enable_adaptive_verification
        policies.append(_Fixed())
        return policies[-1]

    monkeypatch.setattr(draft_budget, "_factory", None)  # put back afterwards
    draft_budget.set_draft_budget_policy_factory(factory)
    draft_budget.set_draft_budget_policy_factory(factory)  # again is fine
    with pytest.raises(ValueError, match="is set already"):
        draft_budget.set_draft_budget_policy_factory(lambda vllm_config, device: _Fixed())

    engine = tiny_engine(random_pair)
    with engine.recorded() as steps:
        tokens = engine.greedy(PROMPTS, batch=8)
    assert tokens == [models.greedy(random_pair[0], prompt) for prompt in PROMPTS]
    full = [step for step in steps if step.scheduled == [TINY_STEPS] * 8]
    assert len(full) > 2
    assert all(step.admitted == [2] + [0] * 7 for step in full)

    (policy,) = policies
    assert len(policy.inputs) == len(steps)
    seen = next(inputs for inputs in policy.inputs[2:] if len(inputs.scheduled_drafts) == 8)
    assert seen.confidences.shape == (8, TINY_STEPS)
    assert ((seen.confidences > 0) & (seen.confidences < 1)).all()
    assert seen.num_non_draft_tokens == seen.num_sampling_requests == 8
    assert seen.max_draft_budget == 8 * TINY_STEPS
    assert seen.draft_cost_ms >= 0
    assert np.isfinite(seen.verify_cost_ms[1:]).all()
