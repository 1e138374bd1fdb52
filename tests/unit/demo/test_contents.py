"""A drafter whose files do not fit each other is refused, by the file and what is wrong with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from vllm_av.demo import contents
from vllm_av.demo.contents import BEFORE, CONFIG, WEIGHTS, read
from vllm_av.errors import Code, DemoError

_TOKENS = torch.tensor([1, 4, 5, 11])
_OFFSETS = _TOKENS - torch.arange(4)
_SIZES = {"vocab_size": 12, "draft_vocab_size": 4}
_SHAPE = "is int64 [3] and not int64 [4]"


def _written(folder: Path, config: object = _SIZES, **weights: Tensor) -> Path:
    save_file({"fc.weight": torch.ones(2, 2).bfloat16(), **weights}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(config))
    return folder


def _refused(folder: Path, file: str, what: str) -> None:
    with pytest.raises(DemoError) as caught:
        read(folder)
    assert caught.value.code is Code.DEMO_CHECKPOINT
    assert caught.value.given.startswith(f"{folder / file}: ")
    assert what in caught.value.given
    assert "\n" not in str(caught.value)


def test_a_whole_one_is_read(tmp_path: Path) -> None:
    found = read(_written(tmp_path, d2t=_OFFSETS))
    assert found.config == _SIZES
    assert found.weights.keys() == {"fc.weight", "d2t"}
    assert found.tokens is not None
    assert torch.equal(found.tokens, _TOKENS)
    assert found.lacks_head


def test_one_with_the_targets_vocabulary_lacks_no_head(tmp_path: Path) -> None:
    found = read(_written(tmp_path, {"vocab_size": 12}))
    assert (found.tokens, found.lacks_head) == (None, False)


@pytest.mark.parametrize(
    ("offsets", "what"),
    [
        (_OFFSETS - 3, "d2t names the tokens -2 to 8, and there are 12"),
        (_OFFSETS + 1, "d2t names the tokens 2 to 12, and there are 12"),
        (torch.tensor([0, 2**63 - 1, 2, 3]), "d2t names the tokens -9223372036854775808 to"),
        (torch.tensor([3, 3, 3, 2]), "do not ascend, or one comes twice"),
        (torch.tensor([3, 1, 3, 3]), "do not ascend"),
        (_OFFSETS[:3].clone(), f"d2t {_SHAPE}, the draft_vocab_size"),
        (_OFFSETS.view(2, 2), "d2t is int64 [2, 2] and not"),
        (_OFFSETS[:0].clone(), "d2t is int64 [0] and not"),
        (torch.tensor(3), "d2t is int64 [] and not"),
        (_OFFSETS.float(), "d2t is float32 [4] and not"),
        (torch.ones(4, dtype=torch.bool), "d2t is bool [4] and not"),
    ],
)
def test_a_wrong_mapping_is_refused(tmp_path: Path, offsets: Tensor, what: str) -> None:
    _refused(_written(tmp_path, d2t=offsets), WEIGHTS, what)


def test_a_wrong_mapping_is_refused_of_one_with_a_head_of_its_own(tmp_path: Path) -> None:
    head = {"lm_head.weight": torch.ones(4, 2)}
    _refused(_written(tmp_path, d2t=_OFFSETS - 3, **head), WEIGHTS, "the tokens -2 to 8")


@pytest.mark.parametrize("sizes", [{}, {"draft_vocab_size": "4"}, {"draft_vocab_size": 13}])
def test_a_mapping_needs_the_sizes_of_both_vocabularies(
    tmp_path: Path, sizes: dict[str, Any]
) -> None:
    _refused(_written(tmp_path, {"vocab_size": 12} | sizes, d2t=_OFFSETS), CONFIG, "vocab_size is")


def test_a_reduced_vocabulary_needs_a_mapping(tmp_path: Path) -> None:
    _refused(_written(tmp_path), WEIGHTS, "has no d2t, and config.json says draft_vocab_size 4")


@pytest.mark.parametrize("shape", [(), (4,), (5, 3), (4, 3, 1)])
def test_a_table_of_tokens_before_has_a_row_for_each(tmp_path: Path, shape: tuple[int]) -> None:
    _refused(_written(tmp_path, d2t=_OFFSETS, **{BEFORE: torch.ones(shape)}), WEIGHTS, "neither 4")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_are_finite(tmp_path: Path, value: float) -> None:
    weight = torch.tensor([1.0, value]).bfloat16()
    _refused(_written(tmp_path, d2t=_OFFSETS, norm=weight), WEIGHTS, "norm holds numbers that are")


@pytest.mark.parametrize("config", [None, [], "x", 1])
def test_a_config_is_an_object(tmp_path: Path, config: object) -> None:
    _refused(_written(tmp_path, config), CONFIG, "which is no object")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _deep(file: Path) -> None:
    file.write_text("[" * 100_000)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("damage", [Path.unlink, _cut, _folder, _deep])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(_written(tmp_path) / name)
    _refused(tmp_path, name, "cannot be read")


def test_weights_that_hold_nothing_are_refused(tmp_path: Path) -> None:
    _written(tmp_path)
    save_file({}, tmp_path / WEIGHTS)
    _refused(tmp_path, WEIGHTS, "holds no weight")


def test_every_type_can_be_asked_whether_it_is_finite() -> None:
    assert contents.all_finite(torch.ones(2).to(torch.float8_e4m3fn))
    assert not contents.all_finite(torch.tensor([float("nan")]).to(torch.float8_e4m3fn))
    assert contents.all_finite(torch.tensor([2**62]))
