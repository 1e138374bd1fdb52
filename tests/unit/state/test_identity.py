"""Whose a state is: equal for the same pair wherever it lies, and for nothing else."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_av.seams.state import identity_of


def config(**changes: Any) -> Any:
    """A ``VllmConfig``, as far as it is asked."""
    facts: dict[str, Any] = {
        "target": "/models/big",
        "layers": 30,
        "draft": "/models/small",
        "method": "eagle3",
        "num_speculative_tokens": 5,
        "draft_sample_method": "probabilistic",
        "rejection_sample_method": "standard",
        "synthetic_acceptance_rates": None,
        "noise": {},
    } | changes

    def model(path: str, layers: int) -> Any:
        fields = {"num_hidden_layers": layers, "_name_or_path": path, **facts["noise"]}
        return SimpleNamespace(model=path, hf_config=SimpleNamespace(to_dict=lambda: fields))

    spec = SimpleNamespace(
        draft_model_config=model(facts["draft"], 1),
        method=facts["method"],
        num_speculative_tokens=facts["num_speculative_tokens"],
        draft_sample_method=facts["draft_sample_method"],
        rejection_sample_method=facts["rejection_sample_method"],
        synthetic_acceptance_rates=facts["synthetic_acceptance_rates"],
        enable_adaptive_verification=True,
    )
    target = model(facts["target"], facts["layers"])
    return SimpleNamespace(model_config=target, speculative_config=spec)


def identity(kind: str = "pooled_estimator 1", **changes: Any) -> dict[str, Any]:
    return identity_of(config(**changes), "pooled_estimator", kind)


@pytest.mark.parametrize(
    "change",
    [
        {"target": "/elsewhere/big", "draft": "/elsewhere/small"},
        {"noise": {"transformers_version": "9.9", "_commit": "abc"}},
    ],
)
def test_it_is_the_same_wherever_the_pair_lies(change: dict[str, Any]) -> None:
    assert identity(**change) == identity()


@pytest.mark.parametrize(
    "change",
    [
        {"target": "/models/other"},
        {"layers": 31},
        {"draft": "/models/other"},
        {"method": "eagle"},
        {"num_speculative_tokens": 4},
        {"draft_sample_method": "greedy"},
        {"rejection_sample_method": "block"},
        {"synthetic_acceptance_rates": [0.9]},
        {"kind": "pooled_estimator 2"},
    ],
)
def test_whatever_moves_acceptance_makes_it_another(change: dict[str, Any]) -> None:
    mine, others = identity(), identity(**change)
    assert len([key for key in mine if mine[key] != others[key]]) == 1


def test_it_is_json_and_names_no_folder() -> None:
    text = json.dumps(identity())
    assert json.loads(text) == identity()
    assert "/models" not in text
