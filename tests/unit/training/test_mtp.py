"""The small target and its MTP layer: what is computed, learnt and written."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vllm_av.errors import TrainingError
from vllm_av.training import mtp, tiny_export, tiny_loop
from vllm_av.training.tiny_model import Shape, TinyModel

SHAPE = Shape(vocabulary=48, hidden=64, intermediate=64, layers=2, heads=2, kv_heads=1)


def _model(seed: int = 0) -> TinyModel:
    torch.manual_seed(seed)
    model = TinyModel(SHAPE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    return model


def test_the_target_is_qwen2s(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = _model()
    tiny_export.save(model, tmp_path, torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.randint(0, SHAPE.vocabulary, (2, 20))
    with torch.no_grad():
        ours = model.logits(model.hidden(tokens)[0])
        torch.testing.assert_close(ours, theirs(tokens).logits, atol=1e-4, rtol=1e-4)


def test_one_token_at_a_time_gives_what_all_at_once_do() -> None:
    model = _model()
    tokens = torch.randint(0, SHAPE.vocabulary, (2, 9))
    with torch.no_grad():
        whole, _ = model.hidden(tokens)
        last, keys = model.hidden(tokens[:, :4])
        for place in range(4, 9):
            last, keys = model.hidden(tokens[:, place, None], keys)
    torch.testing.assert_close(last[:, -1], whole[:, -1])


def test_a_draft_step_reads_no_later_token() -> None:
    model = _model()
    tokens = torch.randint(0, SHAPE.vocabulary, (1, 12))
    changed = tokens.clone()
    changed[0, 8] = (changed[0, 8] + 1) % SHAPE.vocabulary

    def drafted(row: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            hidden, _ = model.hidden(row)
            return list(model.drafts(hidden[:, :9], row[:, 1:], 3))

    for step, (one, other) in enumerate(zip(drafted(tokens), drafted(changed), strict=True)):
        same = (one == other).all(-1)[0]
        # Draft step s at t reads the tokens up to t + s + 1.
        assert same[: 8 - step - 1].all()
        assert not same[8 - step - 1 :].any()


def test_drafts_side_by_side_are_those_of_one_start_alone() -> None:
    """As the engine drafts: one start, its keys after the text's, one position a step."""
    model = _model()
    tokens = torch.randint(0, SHAPE.vocabulary, (1, 10))
    with torch.no_grad():
        hidden, _ = model.hidden(tokens)
        together = list(model.drafts(hidden[:, :6], tokens[:, 1:9], 3))
        layer = model.model.mtp_layers[0]
        for start in (0, 2, 5):
            read = model.model.embed_tokens(tokens[:, 1 : start + 4])
            read[:, 0] = 0
            features, keys = hidden[:, : start + 1], None
            for step in range(3):
                first = 0 if step == 0 else start + step
                token = layer.token_layernorm(read[:, first : start + step + 1])
                x = layer.input_proj(torch.cat([layer.hidden_layernorm(features), token], -1))
                out, keys = layer(x, torch.arange(first, start + step + 1), keys)
                features = layer.final_layernorm(out)[:, -1:]
                alone = model.head(features)[:, 0]
                torch.testing.assert_close(together[step][:, start], alone, atol=1e-5, rtol=1e-4)


def test_what_is_written_bears_vllms_names(tmp_path: Path) -> None:
    tiny_export.save(_model(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert (config["architectures"], config["model_type"]) == (["MiMoForCausalLM"], "qwen2")
    assert config["num_nextn_predict_layers"] == 1
    weights = load_file(tmp_path / "model.safetensors")
    assert {each.dtype for each in weights.values()} == {torch.bfloat16}
    assert {name.split(".")[3] for name in weights if name.startswith("model.mtp_layers.0.")} == {
        "final_layernorm",
        "hidden_layernorm",
        "input_layernorm",
        "input_proj",
        "mlp",
        "post_attention_layernorm",
        "self_attn",
        "token_layernorm",
    }
    assert weights["model.mtp_layers.0.input_proj.weight"].shape == (64, 128)
    assert "lm_head.weight" not in weights


def _text() -> torch.Tensor:
    """Three tokens in turn, with a wrong one now and then."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.arange(4000) % 3 + 5
    tokens[torch.randint(0, 4000, (200,), generator=generator)] = 9
    return tokens


def test_a_short_run_learns_and_leaves_the_rest_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mtp, "TOKENS", 256)
    monkeypatch.setattr(mtp, "_LENGTHS", (32,))
    model, tokens = _model(), _text()
    before = mtp.loss_over(model, tokens)
    layer = {name: each.clone() for name, each in model.state_dict().items() if "mtp_" in name}
    mtp.train_target(
        model, tokens, tiny_loop.LoopPlan(80, 1e-2, 1e-2, rising=5), tmp_path / "target.pt"
    )
    assert mtp.loss_over(model, tokens) < 0.5 < before
    assert all(torch.equal(each, model.state_dict()[name]) for name, each in layer.items())

    rows = mtp.continued(model, tokens[:160].view(8, 20), 12, torch.arange(8) < 4, seed=0)
    assert torch.equal(rows[:, :20], tokens[:160].view(8, 20))
    target = {name: each.clone() for name, each in model.state_dict().items() if "mtp_" not in name}
    with torch.no_grad():
        poor, _ = mtp.draft_loss(model, rows, 5)
    mtp.train_layer(
        model, rows, tiny_loop.LoopPlan(80, 1e-2, 1e-2, rising=5), tmp_path / "layer.pt"
    )
    with torch.no_grad():
        good, _ = mtp.draft_loss(model, rows, 5)
    assert all(after > max(0.8, first) for first, after in zip(poor, good, strict=True))
    assert all(torch.equal(each, model.state_dict()[name]) for name, each in target.items())


def test_rows_are_the_ones_of_their_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_ROWS", 4), ("_TOGETHER", 2), ("_PROMPT", 8), ("NEW", 3)):
        monkeypatch.setattr(mtp, name, size)
    model, path = _model(), tmp_path / "rows.npy"
    rows = mtp.own_rows(model, _text(), path)
    assert torch.equal(mtp.own_rows(model, _text(), path), rows)
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    with pytest.raises(TrainingError, match=r"rows\.npy was made by another"):
        mtp.own_rows(model, _text(), path)


def test_greedy_rows_take_the_likeliest_token() -> None:
    model = _model()
    prompts = torch.randint(0, SHAPE.vocabulary, (3, 6))
    rows = mtp.continued(model, prompts, 4, torch.tensor([True, True, False]), seed=0)
    with torch.no_grad():
        wanted = model.logits(model.hidden(rows)[0]).argmax(-1)[:, 5:-1]
    assert torch.equal(rows[:2, 6:], wanted[:2])
    assert not torch.equal(rows[2, 6:], wanted[2])


class _KilledError(Exception):
    pass


def test_a_killed_run_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_loop, "_SAVE_EVERY", 4)
    plan = tiny_loop.LoopPlan(10, 5e-3, 5e-3)
    rows = _text()[:600].view(20, 30)

    def trained(name: str, *, dies_at: int | None = None, wanted: str = "a") -> TinyModel:
        model = _model()

        def loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
            if step == dies_at:
                raise _KilledError
            return mtp.draft_loss(model, rows[torch.randint(0, 20, (4,))], 2)[1], {}

        tiny_loop.train(model.named_parameters(), loss, plan, tmp_path / name, wanted)
        return model

    whole = trained("whole").state_dict()
    with pytest.raises(_KilledError):
        trained("killed", dies_at=7)
    with pytest.raises(TrainingError, match=r"AV-TRAINING-WORK.*another plan.*delete"):
        trained("killed", wanted="b")
    again = trained("killed").state_dict()
    assert all(torch.equal(each, again[name]) for name, each in whole.items())


def test_the_rate_rises_stays_and_falls() -> None:
    plan = tiny_loop.LoopPlan(steps=1000, matrix_rate=1.0, rate=1.0)
    factors = [plan.factor(step) for step in range(1000)]
    assert factors[0] < factors[20] < factors[49] == factors[400] == 1.0
    assert factors[500] > factors[750] > factors[999] > 0
