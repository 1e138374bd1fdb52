"""What block drafters begin with and leave: the target's layers, the parts of the corpus, files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.training import blocks
from vllm_av.errors import TrainingError
from vllm_av.training import block_files
from vllm_av.training.block import Layer, export
from vllm_av.training.whole import is_made


def test_a_layer_begins_with_the_strongest_neurons_of_the_targets() -> None:
    shape = replace(blocks.SHAPE, intermediate=3, hidden=8, head_dim=4)
    wide = replace(shape, intermediate=5)
    torch.manual_seed(0)
    target, layer = Layer(wide), Layer(shape)
    weak = torch.tensor([1, 3])
    with torch.no_grad():
        target.mlp.up_proj.weight[weak] *= 1e-4
        queries = layer.self_attn.q_proj.weight.clone()
        block_files._inherit(layer, dict(target.named_parameters()))
        states = torch.randn(6, 8)
        torch.testing.assert_close(layer.mlp(states), target.mlp(states), atol=1e-3, rtol=0)
    assert torch.equal(layer.self_attn.v_proj.weight, target.self_attn.v_proj.weight)
    assert torch.equal(layer.self_attn.q_proj.weight, queries)


def test_a_sixteenth_of_the_training_texts_is_set_apart() -> None:
    corpus = blocks.corpus()
    held_out = [n % 10 == 0 for n in range(640)]
    many = replace(corpus, held_out=held_out, workload=["code"] * 640)
    trained, apart = block_files.parts(many)
    assert sorted(trained + apart) == many.sequences(held_out=False)
    assert len(apart) == pytest.approx(640 * 0.9 / 16, abs=4)


def test_likelihoods_are_kept_for_their_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = blocks.corpus()
    first = block_files.likelihoods_of(tmp_path, corpus)
    monkeypatch.setattr(block_files, "likelihoods", lambda corpus: torch.zeros(1))
    assert torch.equal(block_files.likelihoods_of(tmp_path, corpus), first)
    other = replace(corpus, ids=corpus.ids.flip(0))
    assert len(block_files.likelihoods_of(tmp_path, other)) == 1


def test_a_finished_drafter_can_be_read_back(tmp_path: Path) -> None:
    corpus, backbone = blocks.corpus(), blocks.backbone()
    told = {"loss": 1.5, "digest": "a"}
    block_files.finish(tmp_path, {"model_type": "qwen3"}, export(backbone), corpus, told)
    assert is_made(tmp_path / "training.json", "a")
    with pytest.raises(TrainingError, match="another plan"):
        is_made(tmp_path / "training.json", "b")
    weights = block_files.weights_of(tmp_path)
    tokens = torch.arange(blocks.REDUCED) + weights.pop("d2t")
    assert torch.equal(tokens, corpus.vocabulary)
    assert weights.keys() == export(backbone).keys()
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == 0o644
    told = json.loads((tmp_path / "training.json").read_text())
    trained, _ = block_files.parts(corpus)
    lengths = [blocks.LENGTHS[number] - 4 for number in trained]  # without their prompts
    assert (told["texts"], told["generated_tokens"]) == (len(trained), sum(lengths))
    assert (told["loss"], told["version"]) == (1.5, block_files.VERSION)
