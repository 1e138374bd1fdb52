"""The plain draft model: where it starts, how it learns, what is written."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.unit.training import reference
from tests.unit.training.reference import row_loss
from vllm_av.training import data, draft_model, tiny_loop
from vllm_av.training.data import Corpus
from vllm_av.training.tiny_model import Shape

VOCABULARY, WIDTH, LENGTH = 40, 576, 24
SHAPE = Shape(
    vocabulary=VOCABULARY, hidden=16, intermediate=32, layers=1, heads=2, kv_heads=1, bias=False
)


def _corpus() -> Corpus:
    """Sequences that count upwards, which the target foresees."""
    torch.manual_seed(0)
    embedding = torch.randn(VOCABULARY, WIDTH)
    ids = torch.cat([(torch.arange(LENGTH) + start) % VOCABULARY for start in range(16)])
    features = torch.zeros(len(ids), 4, WIDTH)
    features[:, 3] = embedding[(ids + 1) % VOCABULARY] * 0.02
    tokens = ids, features.bfloat16(), embedding.bfloat16(), torch.arange(30)
    return reference.corpus([LENGTH] * 16, 4, 15, tokens)


def test_a_later_instalment_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = _corpus()
    end = corpus.offsets[3]
    # Of 40 tokens it lacks some, which are in what the later instalment brings.
    alone = replace(
        corpus,
        ids=corpus.ids[:end],
        offsets=corpus.offsets[:4],
        held_out=[False] * 3,
        features=corpus.features[:end],
    )
    expected = draft_model.of_first_instalment(alone, [0] * 3)
    found = draft_model.of_first_instalment(corpus, [0] * 3 + [1] * 13)
    assert found.sequences(held_out=False) == expected.sequences(held_out=False) == [0, 1, 2]
    assert torch.equal(found.vocabulary, expected.vocabulary)
    everything = draft_model.of_first_instalment(corpus, [0] * 16)
    assert not torch.equal(found.vocabulary, everything.vocabulary)
    trained = []
    for each in (found, expected):
        model = draft_model.DraftModel(SHAPE, draft_model.projected(each.embedding, 16))
        torch.manual_seed(0)
        for layer in model.model.layers:
            for weight in layer.parameters():
                nn.init.normal_(weight, std=0.1)
        monkeypatch.setattr(draft_model, "_SEQUENCES", 2)
        plan = tiny_loop.LoopPlan(3, 1e-2, 1e-2)
        draft_model.train(model, each, plan, tmp_path / f"{len(trained)}.pt")
        trained.append(model.state_dict())
    for name, weight in trained[0].items():
        assert torch.equal(weight, trained[1][name]), name


def test_the_start_keeps_what_the_targets_rows_differ_in() -> None:
    torch.manual_seed(0)
    rows = torch.randn(200, 4) @ torch.randn(4, 32) * 3 + 0.01 * torch.randn(200, 32) + 5
    small = draft_model.projected(rows, 4)
    assert small.shape == (200, 4)
    assert small.square().mean().sqrt().item() == pytest.approx(0.1, rel=1e-3)
    ratio = torch.pdist(small) / torch.pdist(rows)
    assert (ratio.std() / ratio.mean()).item() < 0.01


def test_the_sampled_loss_is_the_whole_one_where_every_token_is_taken() -> None:
    corpus = _corpus()
    tokens, bias = corpus.some_tokens(step=3)
    assert tokens.sort().values.tolist() == list(range(VOCABULARY))
    assert not bias.any()


def test_a_drawn_token_stands_for_those_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "OTHERS", 2)
    tokens, bias = _corpus().some_tokens(step=3)
    assert tokens[:30].tolist() == list(range(30))
    assert len(tokens) == 32
    assert set(tokens[30:].tolist()) <= set(range(30, 40))
    assert bias[30:].exp().tolist() == pytest.approx([5.0, 5.0])
    assert tokens.tolist() != _corpus().some_tokens(step=4)[0].tolist()


def test_the_gradient_is_that_of_the_loss_over_all_rows_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft_model, "_CHUNK", 7)
    torch.manual_seed(1)
    model = draft_model.DraftModel(SHAPE, 0.1 * torch.randn(VOCABULARY, 16))
    ids, weights = torch.randint(0, VOCABULARY, (2, 10)), torch.tensor([0.3, 1.0]).repeat(10)
    wanted, tokens = torch.randn(20, VOCABULARY), torch.arange(VOCABULARY)
    named = dict(model.named_parameters())

    loss, figures = draft_model.distilled(
        model, model(ids).flatten(0, 1), wanted, weights, tokens, torch.zeros(VOCABULARY)
    )
    ours = torch.autograd.grad(loss, list(named.values()))

    logits = model(ids).flatten(0, 1).bfloat16() @ model.model.embed_tokens.weight.bfloat16().T
    whole = (weights * row_loss(wanted, logits.float())).sum() / weights.sum()
    theirs = torch.autograd.grad(whole, list(named.values()))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0.05)
    p, q = wanted.softmax(-1), logits.float().softmax(-1)
    overlap = torch.minimum(p, q).sum(-1)[weights == 1].mean().item()
    assert figures["accepted"] == pytest.approx(overlap, abs=1e-4)


def test_a_short_run_learns(tmp_path: Path) -> None:
    corpus = _corpus()
    torch.manual_seed(0)
    model = draft_model.DraftModel(SHAPE, draft_model.projected(corpus.embedding, 16))

    def accepted() -> float:
        with torch.no_grad():
            q = (model(corpus.ids.view(16, LENGTH)) @ model.model.embed_tokens.weight.T).softmax(-1)
            p = (corpus.features[:, 3].float() @ corpus.embedding.float().T).softmax(-1)
            return torch.minimum(p.view_as(q), q).sum(-1)[-1].mean().item()

    before = accepted()
    draft_model.train(
        model, corpus, tiny_loop.LoopPlan(80, 1e-2, 1e-2, rising=5), tmp_path / "state.pt"
    )
    assert before < 0.4
    assert accepted() > 0.8


def test_transformers_reads_what_is_written(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(2)
    model = draft_model.DraftModel(SHAPE, torch.randn(VOCABULARY, 16)).bfloat16().float()
    draft_model.export(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    tokens = torch.randint(0, VOCABULARY, (2, 12))
    with torch.no_grad():
        ours = model(tokens) @ model.model.embed_tokens.weight.T
        torch.testing.assert_close(ours, theirs(tokens).logits, atol=1e-4, rtol=1e-3)
