"""Whose a state is: equal for the same pair wherever it lies, and for nothing else."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_av.seams.state import identity_of
from vllm_av.state import samples


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


def digest(place: Path) -> str:
    found = hashlib.sha256()
    samples.add(place, found)
    return found.hexdigest()


def checkpoint(folder: Path, weights: bytes, name: str = "model.safetensors") -> Path:
    folder.mkdir()
    (folder / name).write_bytes(weights)
    (folder / "README.md").write_text(str(folder))
    return folder


def test_a_namesake_with_other_weights_is_another(tmp_path: Path) -> None:
    weights = bytes(range(256)) * 400
    first = checkpoint(tmp_path / "first", weights)
    assert digest(first) == digest(checkpoint(tmp_path / "second", weights))
    assert digest(first) != digest(checkpoint(tmp_path / "third", bytes(reversed(weights))))
    assert digest(first) != digest(checkpoint(tmp_path / "fourth", weights + b"\0"))
    assert digest(first) != digest(checkpoint(tmp_path / "fifth", weights, "other.safetensors"))
    for place in (0, 50_000, len(weights) - 1):  # within a block at the start, middle and end
        changed = bytearray(weights)
        changed[place : place + 4096] = b"x" * len(changed[place : place + 4096])
        assert digest(first) != digest(checkpoint(tmp_path / f"at {place}", bytes(changed)))


def test_few_weights_are_read_whole_and_none_are_none(tmp_path: Path) -> None:
    assert digest(checkpoint(tmp_path / "a", b"abc")) != digest(checkpoint(tmp_path / "b", b"abd"))
    (tmp_path / "empty").mkdir()
    assert digest(tmp_path / "empty") == hashlib.sha256().hexdigest()
    single = tmp_path / "model.gguf"
    single.write_bytes(b"abc")
    assert digest(single) != hashlib.sha256().hexdigest()


def test_weights_count_where_they_are_at_hand(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "target", b"one")
    before = identity(target=str(one))
    (one / "model.safetensors").write_bytes(b"two")
    after = identity(target=str(one))
    assert [key for key in after if after[key] != before[key]] == ["target"]
    assert before["target"].startswith("target ")
