"""What is kept: exactly the files that were written, and a fault of the cache told as one."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vllm_av.demo.kept import is_whole, kept
from vllm_av.errors import Code, DemoError, SetupError


def _make(folder: Path) -> None:
    save_file({"a": torch.ones(2)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")


def _names(cache: Path) -> list[str]:
    return sorted(file.name for file in (cache / "checkpoints").iterdir())


@pytest.mark.parametrize("manifest", ["1", '"x"', "[]", "{}", "null", '["model.safetensors"]'])
def test_a_manifest_that_is_none_is_made_again(manifest: str) -> None:
    folder = kept("x", _make)
    (folder / "sha256.json").write_text(manifest)
    assert not is_whole(folder)
    assert is_whole(kept("x", _make))


def test_a_manifest_of_more_brackets_than_can_be_read_is_none() -> None:
    folder = kept("x", _make)
    (folder / "sha256.json").write_text("[" * 100_000)
    assert not is_whole(folder)


def test_one_file_more_is_made_again() -> None:
    folder = kept("x", _make)
    save_file({"b": torch.ones(2)}, folder / "model-extra.safetensors")
    assert not is_whole(folder)
    assert sorted(file.name for file in kept("x", _make).iterdir()) == [
        "config.json",
        "model.safetensors",
        "sha256.json",
    ]


def test_a_file_that_the_manifest_leaves_out_is_made_again() -> None:
    folder = kept("x", _make)
    manifest = json.loads((folder / "sha256.json").read_text())
    del manifest["config.json"]
    (folder / "sha256.json").write_text(json.dumps(manifest))
    assert not is_whole(folder)


@pytest.mark.parametrize("name", ["x.part", "x.old"])
def test_a_file_or_link_in_the_place_of_a_leftover_goes(cache: Path, name: str) -> None:
    (kept("x", _make) / "config.json").write_text("damaged")
    leftover = cache / "checkpoints" / name
    leftover.write_text("a file")
    assert is_whole(kept("x", _make))
    (kept("x", _make) / "config.json").write_text("damaged")
    leftover.symlink_to("nowhere")
    assert is_whole(kept("x", _make))
    assert name not in _names(cache)


def test_what_the_maker_says_of_its_source_is_left_as_it_is(cache: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "begun").touch()
        raise DemoError(Code.DEMO_CHECKPOINT, "the source", "another", "take it")

    with pytest.raises(DemoError, match="the source"):
        kept("x", make)
    assert _names(cache) == ["x.lock"]


# A limit on the size of a file stands for a full disk: the same calls fail, in the same libraries.
_CONVERT = """
import sys
from pathlib import Path
from vllm_av.demo.checkpoint import converted
from vllm_av.errors import SetupError
try:
    converted(Path(sys.argv[1]), lambda fraction: None)
except SetupError as error:
    print(error)
"""


@pytest.mark.parametrize("most", [100, 5_000, 30_000])  # bytes: config, tokenizer, weights
def test_a_disk_that_takes_no_more_is_told_and_left_clean(
    gguf: Path, cache: Path, most: int
) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _CONVERT, str(gguf)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(f"[AV-CACHE-DIR] the cache folder {cache}/checkpoints cannot")
    assert "too large" in answer.stdout
    assert all(name.endswith(".lock") for name in _names(cache))


def test_a_cache_in_the_way_is_told(cache: Path) -> None:
    cache.mkdir()
    (cache / "checkpoints").write_text("in the way")
    with pytest.raises(SetupError) as caught:
        kept("x", _make)
    assert caught.value.code is Code.CACHE_DIR
