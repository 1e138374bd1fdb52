"""A carried drafter becomes what vLLM loads: the target's rows are added, a head is left out."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from vllm_av.demo.completion import completed
from vllm_av.demo.kept import is_whole
from vllm_av.errors import Code, DemoError, SetupError

_VOCABULARY, _HIDDEN = 12, 4
_TOKENS = torch.tensor([1, 4, 5, 11])
_HEAD = "model.embed_tokens.weight"
_EMBEDDING = torch.arange(_VOCABULARY * _HIDDEN).view(_VOCABULARY, _HIDDEN).bfloat16()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target-0123"
    folder.mkdir()
    save_file({_HEAD: _EMBEDDING}, folder / "model.safetensors")
    return folder


def _drafter(tmp_path: Path, **more: torch.Tensor) -> Path:
    folder = tmp_path / "drafter"
    folder.mkdir(exist_ok=True)
    weights = {"fc.weight": torch.ones(_HIDDEN, _HIDDEN).bfloat16(), **more}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(_config("d2t" in more)))
    return folder


def _config(reduced: bool) -> dict[str, object]:
    sizes = {"vocab_size": _VOCABULARY} | ({"draft_vocab_size": len(_TOKENS)} if reduced else {})
    return sizes | {"enable_confidence_head": True}


def _offsets() -> torch.Tensor:
    return _TOKENS - torch.arange(len(_TOKENS))


def test_a_complete_drafter_is_taken_as_it_is(tmp_path: Path, target: Path) -> None:
    drafter = _drafter(tmp_path)
    assert completed(drafter, target) == drafter


def test_the_head_is_the_targets_rows(tmp_path: Path, target: Path, cache: Path) -> None:
    drafter = _drafter(tmp_path, d2t=_offsets())
    made = completed(drafter, target)
    assert made.parent == cache / "checkpoints"
    assert is_whole(made)
    carried, weights = (
        load_file(drafter / "model.safetensors"),
        load_file(made / "model.safetensors"),
    )
    assert torch.equal(weights.pop("lm_head.weight"), _EMBEDDING[_TOKENS])
    assert weights.keys() == carried.keys()
    assert all(torch.equal(weights[name], carried[name]) for name in carried)
    assert completed(drafter, target) == made


def test_tokens_outside_the_reduced_vocabulary_get_no_markov_bias(
    tmp_path: Path, target: Path
) -> None:
    name = "markov_head.markov_w1.weight"
    carried = torch.randn(len(_TOKENS), 3).bfloat16()
    made = completed(_drafter(tmp_path, d2t=_offsets(), **{name: carried}), target)
    found = load_file(made / "model.safetensors")[name]
    assert found.shape == (_VOCABULARY, 3)
    assert torch.equal(found[_TOKENS], carried)
    assert found.abs().sum() == carried.abs().sum()


def test_a_part_can_be_left_out(tmp_path: Path, target: Path) -> None:
    head = {"confidence_head.proj.weight": torch.ones(1, _HIDDEN)}
    drafter = _drafter(tmp_path, d2t=_offsets(), **head)
    whole = completed(drafter, target)
    made = completed(drafter, target, without="confidence_head.")
    assert made != whole
    assert set(load_file(made / "model.safetensors")) == {"fc.weight", "d2t", "lm_head.weight"}
    assert set(load_file(whole / "model.safetensors")) > set(head)
    switched = json.loads((made / "config.json").read_text())
    assert switched == _config(reduced=True) | {"enable_confidence_head": False}


def test_other_weights_have_another_folder(tmp_path: Path, target: Path) -> None:
    first = completed(_drafter(tmp_path, d2t=_offsets()), target)
    extra = {"norm.weight": torch.ones(_HIDDEN)}
    assert completed(_drafter(tmp_path, d2t=_offsets(), **extra), target) != first


def test_a_wrong_drafter_is_refused_though_a_copy_is_kept(tmp_path: Path, target: Path) -> None:
    completed(_drafter(tmp_path, d2t=_offsets()), target)
    drafter = _drafter(tmp_path, d2t=_offsets() - 3)
    with pytest.raises(DemoError, match="d2t names the tokens -2 to 8") as caught:
        completed(drafter, target)
    assert caught.value.code is Code.DEMO_CHECKPOINT


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (None, "cannot be read"),
        ({"other": _EMBEDDING}, "cannot be read"),
        ({_HEAD: _EMBEDDING[:-1].clone()}, "is [11, 4], and the drafter's vocabulary has 12"),
        ({_HEAD: torch.ones(12)}, "is [12], and the drafter's vocabulary has 12"),
        ({_HEAD: _EMBEDDING * float("nan")}, "not finite"),
    ],
)
def test_a_target_that_does_not_fit_is_told_as_the_targets_fault(
    tmp_path: Path, target: Path, cache: Path, head: dict[str, torch.Tensor] | None, what: str
) -> None:
    file = target / "model.safetensors"
    file.unlink()
    if head is not None:
        save_file(head, file)
    with pytest.raises(DemoError) as caught:
        completed(_drafter(tmp_path, d2t=_offsets()), target)
    assert caught.value.code is Code.DEMO_CHECKPOINT
    assert caught.value.given.startswith(f"{file}: ")
    assert what in caught.value.given
    assert [path.suffix for path in (cache / "checkpoints").iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, target: Path, cache: Path) -> None:
    cache.mkdir()
    (cache / "checkpoints").write_text("in the way")
    with pytest.raises(SetupError) as caught:
        completed(_drafter(tmp_path, d2t=_offsets()), target)
    assert caught.value.code is Code.CACHE_DIR
