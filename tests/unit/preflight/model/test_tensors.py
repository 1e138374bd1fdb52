"""The names of a checkpoint's tensors: from its index, from headers, from nowhere."""

import json
from pathlib import Path

import pytest

import vllm_av
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.model.tensors import tensor_names

DATA = Path(vllm_av.__file__).parent / "data"
CODE = Code.QUESTION_DRAFT


def safetensors(file: Path, header: bytes, length: int | None = None) -> None:
    """A file with that header and no tensors behind it."""
    said = len(header) if length is None else length
    file.write_bytes(said.to_bytes(8, "little") + header)


def test_an_index(tmp_path: Path) -> None:
    index = {"metadata": {}, "weight_map": {"a.weight": "1", "confidence_head.proj.weight": "2"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert tensor_names(tmp_path, CODE) == {"a.weight", "confidence_head.proj.weight"}


def test_the_header_of_a_carried_drafter() -> None:
    names = tensor_names(DATA / "smollm2-dspark", CODE)
    assert names is not None
    assert any("confidence_head" in name for name in names)
    assert "__metadata__" not in names


def test_several_files_without_an_index(tmp_path: Path) -> None:
    safetensors(tmp_path / "a.safetensors", b'{"__metadata__": {}, "x": {}}')
    safetensors(tmp_path / "b.safetensors", b'{"y": {}}')
    assert tensor_names(tmp_path, CODE) == {"x", "y"}


def test_an_index_of_pytorch_files(tmp_path: Path) -> None:
    index = {"weight_map": {"lm_head.weight": "pytorch_model-1.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert tensor_names(tmp_path, CODE) == {"lm_head.weight"}


def test_safetensors_outweigh_pytorch_files(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin.index.json").write_text('{"weight_map": {"old": "1"}}')
    safetensors(tmp_path / "model.safetensors", b'{"new": {}}')
    assert tensor_names(tmp_path, CODE) == {"new"}


def test_a_link_to_weights_that_were_removed(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    assert tensor_names(tmp_path, CODE) is None


def test_nowhere(tmp_path: Path) -> None:
    assert tensor_names(tmp_path, CODE) is None


def test_more_names_than_are_worth_reading_are_not_known(tmp_path: Path) -> None:
    large = b'{"weight_map": {"%s": "1"}}' % (b"x" * (33 << 20))
    (tmp_path / "model.safetensors.index.json").write_bytes(large)
    safetensors(tmp_path / "a.safetensors", b'{"x": {}}')
    assert tensor_names(tmp_path, CODE) == {"x"}
    header = b'{"y": {}}' + b" " * (12 << 20)
    for part in ("b", "c"):
        safetensors(tmp_path / f"{part}.safetensors", header)
    assert tensor_names(tmp_path, CODE) == {"x", "y"}
    safetensors(tmp_path / "d.safetensors", header)
    assert tensor_names(tmp_path, CODE) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "no object under weight_map"),
        ('{"weight_map": []}', "no object under weight_map"),
        ("{}", "no object under weight_map"),
        ('{"weight_map": {', "no JSON"),
        ('{"weight_map": ' + "[" * 200_000, "nested too deeply"),
    ],
)
def test_a_broken_index(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckError, match=reason) as caught:
        tensor_names(tmp_path, CODE)
    assert caught.value.code is CODE


@pytest.mark.parametrize(
    ("header", "length", "reason"),
    [
        (b"", None, "does not begin"),
        (b"{}", 10**12, "does not begin"),
        (b"{}", 50, "ends within its header"),
        (b"{broken", None, "its header is no JSON"),
        (b"\xff\xfe\xfd", None, "its header is no JSON"),
        (b"[" * 200_000, None, "its header is no JSON"),
        (b"[1, 2]", None, "its header is no object"),
    ],
)
def test_a_broken_header(header: bytes, length: int | None, reason: str, tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", header, length)
    with pytest.raises(CheckError, match=reason) as caught:
        tensor_names(tmp_path, CODE)
    assert caught.value.code is CODE


def test_a_device_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("/dev/zero")
    with pytest.raises(CheckError, match="no regular file"):
        tensor_names(tmp_path, CODE)


def test_a_file_of_fewer_bytes_than_a_length(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\1")
    with pytest.raises(CheckError, match="does not begin"):
        tensor_names(tmp_path, CODE)
