"""The drafters that the package carries: their size, and that they are what their papers say."""

import hashlib
import itertools
import json
import operator
import re
from pathlib import Path
from typing import Any

import pytest

from ci import acceptance, provenance
from ci.papers import PAPERS
from vllm_av.demo.drafter import DRAFTERS, Drafter, carried

MEGABYTE = 1_000_000
FOLDERS = sorted(folder for folder in carried("eagle").parent.iterdir() if folder.is_dir())
LISTED = re.compile(r"^    ([0-9a-f]{64})  (\S+)$", re.MULTILINE)


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def drafter(folder: Path) -> Drafter:
    """The one whose paper lies there."""
    (name,) = (name for name in provenance.NAMES if carried(name) == folder)
    return DRAFTERS[name]


@pytest.fixture
def config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture
def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_all_of_them_together_are_small() -> None:
    sizes = {
        folder.name: sum(file.stat().st_size for file in folder.iterdir()) for folder in FOLDERS
    }
    assert max(sizes.values()) <= 12 * MEGABYTE, sizes
    assert sum(sizes.values()) <= 40 * MEGABYTE, sizes


def test_each_of_them_can_be_asked_for_and_whatever_can_be_is_there() -> None:
    assert set(FOLDERS) == {carried(name) for name in DRAFTERS}


def test_the_paper_lists_every_file_with_its_digest(folder: Path) -> None:
    paper = (folder / "PROVENANCE.md").read_text()
    listed = {name: digest for digest, name in LISTED.findall(paper)}
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.name != "PROVENANCE.md"
    }
    assert found == listed
    assert {"acceptance.json", "config.json", "model.safetensors", "training.json"} <= set(found)


def test_the_paper_is_what_the_carried_files_say(folder: Path, drafter: Drafter) -> None:
    minutes = provenance.minutes_of(folder)
    assert minutes is not None
    written = (folder / "PROVENANCE.md").read_text()
    assert written == provenance.paper(drafter, minutes), "run: python -m ci.provenance"


def test_the_script_still_makes_what_is_carried(folder: Path, drafter: Drafter) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    training = json.loads((folder / "training.json").read_text(), parse_constant=refuse)
    assert training["version"] == PAPERS[drafter.method].version
    assert re.fullmatch("[0-9a-f]{64}", training["digest"])


def test_what_is_carried_is_what_was_measured(folder: Path) -> None:
    found = acceptance.measured(folder)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert found["weights"] == digest
    asked = {(name, temperature) for name in acceptance.WORKLOADS for temperature in (0, 1)}
    assert acceptance.figures(found).keys() == asked
    for row in found["rows"]:
        # Each step that accepts a draft at a position accepted those before it.
        chained = itertools.accumulate(row["given"], operator.mul)
        assert row["accepted"] == pytest.approx(sum(chained), abs=0.005)


def test_weights_are_bfloat16_and_finite(weights: dict[str, Any]) -> None:
    import torch

    for name, tensor in weights.items():
        assert tensor.dtype is (torch.int64 if name == "d2t" else torch.bfloat16), name
        assert tensor.isfinite().all(), name


def test_nothing_that_the_target_has_is_carried(folder: Path, weights: dict[str, Any]) -> None:
    if any(each.own_target for name, each in DRAFTERS.items() if carried(name) == folder):
        pytest.skip("this drafter lies in its target")
    assert not [name for name in weights if "lm_head" in name]
    embeddings = [name for name in weights if "embed_tokens" in name]
    # The draft model is a whole model of its own width.
    assert not embeddings or weights[embeddings[0]].shape[1] != 576


def test_the_reduced_vocabulary_is_ascending_and_in_range(
    config: dict[str, Any], weights: dict[str, Any]
) -> None:
    if "d2t" not in weights:
        pytest.skip("this drafter has the target's vocabulary")
    tokens = weights["d2t"] + weights["d2t"].new_tensor(range(len(weights["d2t"])))
    assert len(tokens) == config["draft_vocab_size"]
    assert (tokens.diff() > 0).all()
    assert tokens[0] >= 0
    assert tokens[-1] < config["vocab_size"]


def test_shapes_are_what_the_config_says(config: dict[str, Any], weights: dict[str, Any]) -> None:
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    rows = {
        "q_proj": config["num_attention_heads"] * head,
        "k_proj": config["num_key_value_heads"] * head,
        "v_proj": config["num_key_value_heads"] * head,
        "o_proj": hidden,
        "gate_proj": intermediate,
        "up_proj": intermediate,
        "down_proj": hidden,
        "fc": hidden,
    }
    layers = set()
    for name, tensor in weights.items():
        found = re.search(r"layers\.(\d+)\.", name)
        if found and "mtp_layers" not in name:
            layers.add(int(found.group(1)))
        kind = name.split(".")[-2] if "." in name else name
        if kind in rows and name.endswith(".weight"):
            assert tensor.shape[0] == rows[kind], name
        if kind == "down_proj":
            assert tensor.shape[1] == intermediate, name
    assert layers == set(range(config["num_hidden_layers"]))
