"""The papers of the carried drafters are written from what was carried and measured."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci import provenance
from ci.papers import PAPERS
from vllm_av.demo.drafter import DRAFTERS, Drafter
from vllm_av.training import block_files

RUN = {
    "version": block_files.VERSION,
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
    "unreached": 0.125,
    "decay": 0.75,
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
    (tmp_path / "PROVENANCE.md").write_text("| Time | about 48 minutes of one core |\n")
    monkeypatch.setattr(provenance, "carried", lambda name: tmp_path)
    return DRAFTERS["dspark"]


def _measure(folder: Path, accepted: float, **more: Any) -> None:
    """The same on each workload, better on the first one."""
    rows = [
        {"workload": workload, "temperature": temperature, "steps": 400, "given": [0.5] * 3}
        | {"accepted": 2.0 if workload == "humaneval" else accepted}
        | more
        for workload in ("humaneval", "docs", "instructions", "code")
        for temperature in (0.0, 1.0)
    ]
    if more:
        rows[0] |= {"labels": [30, 0, 0], "said": [0.8] * 3}  # at temperature 0
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    found = {"weights": weights, "vllm": "9.9", "dtype": "float8", "num_speculative_tokens": 3}
    found |= {"prompts": 11, "max_tokens": 77, "rows": rows}
    (folder / "acceptance.json").write_text(json.dumps(found))


def test_rows_say_what_the_carried_files_say(drafter: Drafter) -> None:
    rows = provenance.rows(drafter)
    assert rows["Size"].startswith("0.6M parameters, bfloat16, 1.2 MB")
    assert "2 layers of 1,024 intermediate units" in rows["Layout"]
    assert rows["Training text"].startswith("1,500 sequences, 250,000 tokens")
    assert rows["Training"].startswith("seed 3, 1,200 steps of 4 sequences with 32 blocks")
    assert "but for 0.125 of the weight, which" in rows["Training"]
    assert rows["Last training figures"].endswith(
        "loss 2.500; acceptance of each position 0.500 0.250"
    )
    assert "it says 0.500 - where 0.750 - is true" in rows["Confidence head"]
    assert f"version {block_files.VERSION};" in rows["Script"]
    assert "vllm_av.training dspark`" in rows["Script"]
    assert "ab" * 32 in rows["Run"]


def test_a_record_that_lacks_something_is_no_paper(drafter: Drafter, tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(
        json.dumps({key: value for key, value in RUN.items() if key != "digest"})
    )
    with pytest.raises(KeyError, match="digest"):
        provenance.rows(drafter)


def test_weights_of_another_script_are_no_paper(drafter: Drafter, tmp_path: Path) -> None:
    other = RUN | {"version": block_files.VERSION + 1}
    (tmp_path / "training.json").write_text(json.dumps(other))
    with pytest.raises(ValueError, match=f"made by version {other['version']}"):
        provenance.rows(drafter)


def test_what_was_measured_of_other_weights_is_no_paper(drafter: Drafter, tmp_path: Path) -> None:
    _measure(tmp_path, 1.0)
    with (tmp_path / "model.safetensors").open("ab") as weights:
        weights.write(b"\0")
    with pytest.raises(ValueError, match=r"acceptance\.json is of other weights"):
        provenance.paper(drafter, minutes=20)


@pytest.mark.parametrize(
    ("accepted", "said"),
    [
        (0.996, "is missed; those that get there: `humaneval`."),
        (1.0, "is met; those that get there: `humaneval`, `docs`, `instructions`, `code`."),
    ],
)
def test_the_bar_is_met_or_missed(
    drafter: Drafter, tmp_path: Path, accepted: float, said: str
) -> None:
    _measure(tmp_path, accepted)
    paper = provenance.paper(drafter, minutes=20)
    assert said in " ".join(paper.split())
    assert "| docs | 1 | 1.00 | 0.500 | 0.500 | 0.500 | 400 |" in paper
    assert "| workload | temperature | accepted | 1 | 2 | 3 | steps |" in paper
    assert "## Confidence head" not in paper


def test_how_it_was_measured_and_how_long_it_took_is_what_was_kept(
    drafter: Drafter, tmp_path: Path
) -> None:
    _measure(tmp_path, 1.0)
    paper = " ".join(provenance.paper(drafter, minutes=20).split())
    assert "engine (vLLM 9.9, float8, K=3," in paper
    assert "11 prompts a workload, 77 tokens each at most" in paper
    assert "| Time | about 20 minutes of one core, after the 48 of `dflash`;" in paper
    assert provenance.minutes_of(tmp_path) == 48
    assert provenance.minutes_of(tmp_path / "nothing") is None


def test_what_a_confidence_head_said_weighs_by_its_drafts(drafter: Drafter, tmp_path: Path) -> None:
    _measure(tmp_path, 1.0, labels=[10, 4, 0], said=[0.5] * 3, seen=[0.25] * 3)
    paper = provenance.paper(drafter, minutes=20)
    assert "| 0 | said | 0.650 | 0.500 | 0.000 |" in paper
    assert "| 0 | drafts | 60 | 12 | 0 |" in paper
    assert "| 1 | said | 0.500 | 0.500 |" in paper
    assert "| 1 | seen | 0.250 | 0.250 |" in paper


def test_measuring_is_taken_over_into_the_package(
    drafter: Drafter,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = tmp_path_factory.mktemp("work")
    _measure(tmp_path, 1.0)
    weights = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    (tmp_path / "acceptance.json").rename(work / f"acceptance-dspark-{weights[:12]}.json")
    monkeypatch.setattr("sys.argv", ["provenance", "dspark", "--work", str(work)])
    provenance.main()
    assert (tmp_path / "PROVENANCE.md").read_text() == provenance.paper(drafter, minutes=48)
    assert json.loads((tmp_path / "acceptance.json").read_text())["weights"] == weights


def test_each_folder_has_one_paper() -> None:
    assert "dspark-headless" not in provenance.NAMES
    folders = [DRAFTERS[name].folder for name in provenance.NAMES]
    assert sorted(folders) == sorted({each.folder for each in DRAFTERS.values()})


def test_there_are_words_for_each_drafter() -> None:
    assert set(PAPERS) == {each.method for each in DRAFTERS.values()}


def test_a_stage_is_called_what_the_command_line_calls_it(
    drafter: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(drafter, method="draft_model")
    monkeypatch.setitem(PAPERS, "draft_model", PAPERS["dspark"])
    assert "vllm_av.training draft-model`" in provenance.rows(other)["Script"]
