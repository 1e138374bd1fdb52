"""The papers of the carried drafters are written from what was carried and measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from ci import provenance
from ci.papers import PAPERS
from vllm_av.demo.drafter import DRAFTERS, Drafter

RUN = {
    "script": "vllm_av.training, block drafters, version 7",
    "digest": "ab" * 32,
    "made_on": {"python": "3.11.7", "processor": "a processor"},
    "seed": 3,
    "steps": 1200,
    "texts": 1500,
    "generated_tokens": 250_000,
    "left_out": 12,
    "texts_per_step": 4,
    "anchors_per_text": 32,
    "widths": [5, 7],
    "loss": 2.5,
    "acceptance_on_training_text": [0.5, 0.25],
    "confidence": {"rows": 2000, "said": [0.5, None], "true": [0.75, None]},
}
CONFIG = {
    "num_hidden_layers": 2,
    "intermediate_size": 1024,
    "markov_rank": 16,
    "block_size": 7,
    "draft_vocab_size": 6144,
}


@pytest.fixture
def drafter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Drafter:
    """DSpark, carried as ``tmp_path``."""
    import torch
    from safetensors.torch import save_file

    weights = {"fc": torch.zeros(600, 1000, dtype=torch.bfloat16), "d2t": torch.arange(6144)}
    save_file(weights, tmp_path / "model.safetensors")
    for name, value in (("training", RUN), ("config", CONFIG)):
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    monkeypatch.setattr(provenance, "carried", lambda name: tmp_path)
    return DRAFTERS["dspark"]


def _measured(accepted: float, **more: Any) -> list[dict[str, Any]]:
    """The same on each workload, better on the first one."""
    return [
        {"workload": workload, "temperature": heat, "steps": 400, "given": [0.5] * 5}
        | {"accepted": 2.0 if workload == "humaneval" else accepted}
        | more
        for workload in ("humaneval", "docs", "instructions", "code")
        for heat in (0.0, 1.0)
    ]


def test_rows_say_what_the_carried_files_say(drafter: Drafter) -> None:
    rows = provenance.rows(drafter)
    assert rows["Size"].startswith("0.6M parameters, bfloat16, 1.2 MB")
    assert "2 layers of 1,024 intermediate units" in rows["Layout"]
    assert rows["Training text"].startswith("1,500 sequences, 250,000 tokens")
    assert rows["Training"].startswith("seed 3, 1,200 steps of 4 sequences with 32 blocks")
    assert rows["Last training figures"].endswith(
        "loss 2.500; acceptance of each position 0.500 0.250"
    )
    assert "it says 0.500 - where 0.750 - is true" in rows["Confidence head"]
    assert "version 7;" in rows["Script"]
    assert "ab" * 32 in rows["Run"]


def test_a_record_that_lacks_something_is_no_paper(drafter: Drafter, tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(
        json.dumps({key: value for key, value in RUN.items() if key != "digest"})
    )
    with pytest.raises(KeyError, match="digest"):
        provenance.rows(drafter)


@pytest.mark.parametrize(
    ("accepted", "said"),
    [
        (0.9, "is missed; those that get there: `humaneval`."),
        (1.0, "is met; those that get there: `humaneval`, `docs`, `instructions`, `code`."),
    ],
)
def test_the_bar_is_met_or_missed(drafter: Drafter, accepted: float, said: str) -> None:
    paper = provenance.paper(drafter, _measured(accepted), minutes=20)
    assert said in " ".join(paper.split())
    assert "| docs | 1 | " + f"{accepted:.2f} | 0.500 | 0.500" in paper
    assert "| Time | about 20 minutes of one core |" in paper
    assert "## Confidence head" not in paper


def test_what_a_confidence_head_said_weighs_by_its_drafts(drafter: Drafter) -> None:
    head = {"labels": [10, 4, 0, 0, 0], "said": [0.5] * 5, "seen": [0.25] * 5}
    measured = _measured(1.0, **head)
    measured[0] |= {"labels": [30, 0, 0, 0, 0], "said": [0.8] * 5}  # at temperature 0
    paper = provenance.paper(drafter, measured, minutes=20)
    assert "| 0 | said | 0.650 | 0.500 | 0.000 |" in paper
    assert "| 0 | drafts | 60 | 12 | 0 |" in paper
    assert "| 1 | said | 0.500 | 0.500 |" in paper
    assert "| 1 | seen | 0.250 | 0.250 |" in paper


def test_there_are_words_for_each_drafter() -> None:
    assert set(PAPERS) == {each.method for each in DRAFTERS.values()}
