"""Files are read at once or not at all."""

import os
from pathlib import Path

import pytest

from vllm_av.preflight.reading import TooLargeError, read_bytes, some


def test_what_has_nothing_to_give_now_is_refused() -> None:
    out, into = os.pipe()
    os.set_blocking(out, False)
    with open(out, "rb") as stream, open(into, "wb", buffering=0) as writer:
        with pytest.raises(ValueError, match="nothing can be read"):
            some(stream, 10)
        writer.write(b"abc")
        assert some(stream, 10) == b"abc"


def test_as_far_as_it_may_be_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 2048)
    assert read_bytes(file, 2048) == b"x" * 2048
    with pytest.raises(TooLargeError, match="more than 1 KiB"):
        read_bytes(file, 1024)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda file: file.symlink_to("/dev/zero")])
def test_what_is_no_file(make: object, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "file")
    with pytest.raises((ValueError, OSError), match="no regular file"):
        read_bytes(tmp_path / "file", 10)
