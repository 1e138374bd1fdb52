"""What an installed FlashInfer can do, read from its files."""

from pathlib import Path

import pytest

from vllm_av.preflight.backends.flashinfer import FlashInfer, decode_kernel, installed
from vllm_av.preflight.backends.gpus import gpu

NEW = "(query, *, backend='auto', q_len_per_req=1, max_q_len=None, cum_seq_lens_q=None)"
OLD = "(query, backend='auto', q_len_per_req=1)"


def tree(at: Path, source: str | bytes | None, metadata: str = "Version: 0.7.2\n") -> list[str]:
    """A folder of packages with a FlashInfer whose ``decode.py`` is that."""
    info = at / "flashinfer_python-0.7.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: flashinfer-python\n{metadata}")
    (at / "flashinfer").mkdir()
    if source is not None:
        raw = source.encode() if isinstance(source, str) else source
        (at / "flashinfer/decode.py").write_bytes(raw)
    return [str(at)]


def function(arguments: str) -> str:
    return f"import nowhere\n\n\ndef trtllm_batch_decode_with_kv_cache{arguments}: ...\n"


def test_one_that_takes_lengths(tmp_path: Path) -> None:
    found = installed(tree(tmp_path, function(NEW)))
    assert found == FlashInfer("0.7.2", True, "flashinfer/decode.py:4")


@pytest.mark.parametrize("arguments", [OLD, OLD[:-1] + ", max_q_len=None)"])
def test_one_that_takes_none_or_half(arguments: str, tmp_path: Path) -> None:
    assert installed(tree(tmp_path, function(arguments))).takes_lengths is False


def test_one_without_the_function_takes_none(tmp_path: Path) -> None:
    assert installed(tree(tmp_path, "")) == FlashInfer("0.7.2", False, None)


@pytest.mark.parametrize("source", [None, "def f(:", b"\x00\xff", "def f():\n\xa0x"])
def test_what_cannot_be_read_is_not_guessed(source: str | bytes | None, tmp_path: Path) -> None:
    assert installed(tree(tmp_path, source)) == FlashInfer("0.7.2", None, None)


def test_none(tmp_path: Path) -> None:
    assert installed([str(tmp_path)]) == FlashInfer(None, None, None)


def test_broken_metadata(tmp_path: Path) -> None:
    assert installed(tree(tmp_path, function(NEW), "")).version == "unknown"


@pytest.mark.parametrize(
    ("on", "kernel"),
    [
        ("sm75", None),
        ("sm80", "fa2"),
        ("sm89", "fa2"),
        ("sm90", "XQA"),
        ("sm100", "trtllm-gen"),
        ("sm103", "trtllm-gen"),
        ("sm120", "XQA"),
        ("sm121", "XQA"),
        ("gfx942", None),
        ("cpu", None),
    ],
)
def test_which_kernel_decodes(on: str, kernel: str | None) -> None:
    found = gpu(on)
    assert found is not None
    assert decode_kernel(found) == kernel
