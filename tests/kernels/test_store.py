"""Compiled kernels on disk: two processes, broken files, killed writers, other versions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from vllm_av.cpu import backend, store
from vllm_av.cpu.launcher import Launcher

PROGRAM = """
import sys, torch, triton, triton.language as tl
from vllm_av.cpu import backend, install, store
install()

@triton.jit
def kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(x_ptr + i) * 3)

assembled = []
assemble = backend.assemble
backend.assemble = lambda text: assembled.append(1) or assemble(text)
x = torch.arange(64, dtype=torch.float32)
for dtype in (torch.float32, torch.float64):
    out = torch.zeros(64, dtype=dtype)
    kernel[(1,)](x, out, 64)
    assert torch.equal(out, x.to(dtype) * 3), out
print("compiled", len(assembled))
"""


def start(folder: Path) -> "subprocess.Popen[str]":
    """A process that launches one kernel of two signatures."""
    script = folder / "program.py"
    if not script.exists():  # another process may be reading it
        script.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ | {"AV_CACHE": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> int:
    """How many kernels it compiled; its own checks passed."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return int(out.split()[-1])


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "kernels").glob("*.o"))


@triton.jit
def _scaled(x_ptr, out_ptr, FACTOR: tl.constexpr):
    i = tl.arange(0, 64)
    tl.store(out_ptr + i, tl.load(x_ptr + i) * FACTOR)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Launch as a new process would, in a cache folder of the test's own: how often it compiled."""
    monkeypatch.setenv("AV_CACHE", str(tmp_path / "cache"))
    compiled = []
    assemble = backend.assemble
    monkeypatch.setattr(backend, "assemble", lambda text: compiled.append(text) or assemble(text))

    def launch(factor: float = 3.0) -> int:
        before = len(compiled)
        x, out = torch.arange(64.0), torch.zeros(64)
        Launcher(_scaled)((1,), (x, out, factor), {})
        assert torch.equal(out, x * factor)
        return len(compiled) - before

    return launch


def test_several_processes_at_once(tmp_path):
    for process in [start(tmp_path) for _ in range(3)]:
        finish(process)
    assert len(files(tmp_path)) == 2
    assert finish(start(tmp_path)) == 0
    assert list((tmp_path / "cache" / "kernels").glob(".*")) == []


def test_compiled_once_then_read(run, tmp_path):
    assert [run(), run(), run()] == [1, 0, 0]
    assert len(files(tmp_path)) == 1


def test_other_constants_are_another_kernel(run, tmp_path):
    assert [run(3.0), run(4.0), run(3.0), run(4.0)] == [1, 1, 0, 0]
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("damage", ["empty", "half", "bit", "other", "text"])
def test_a_damaged_file_is_compiled_again(run, tmp_path, damage):
    run(3.0)
    (file,) = files(tmp_path)
    content = file.read_bytes()
    run(4.0)
    (other,) = set(files(tmp_path)) - {file}
    broken = {
        "empty": b"",
        "half": content[: len(content) // 2],
        "bit": content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
        "other": content[:49] + other.read_bytes()[49:],
        "text": b"hello",
    }[damage]
    file.write_bytes(broken)
    assert run(3.0) == 1
    assert file.read_bytes() != broken
    assert run(3.0) == 0


WRITER = """
import os, signal, sys
from itertools import count
from vllm_av.cpu import store

code = bytes(range(256)) * 2000
store.key("", "")  # what is computed once per process
for moment in count(1):
    before = store.read("name")
    child = os.fork()
    if child == 0:
        left = moment

        def profile(frame, event, what):
            # Before and after every call of a C function, which all that reach the disk are.
            global left
            if event in ("c_call", "c_return"):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(profile)
        store.write("name", code)
        sys.setprofile(None)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    found = store.read("name")
    assert found in (before, code), moment
    files = list((store.cache_dir() / "kernels").glob("*.o"))
    assert len(files) == (found is not None)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        assert found == code
        break
    if found is not None:
        files[0].unlink()
print("moments", moment)
"""


def test_killed_at_any_moment_of_writing(tmp_path):
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    result = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"AV_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[-1]) > 40


def test_a_folder_that_cannot_be_written_only_costs_time(run, tmp_path):
    (tmp_path / "cache").write_text("in the way")
    assert [run(), run()] == [1, 1]


def test_the_name_depends_on_all_that_the_code_depends_on(monkeypatch):
    name = store.key("source", "signature")
    assert store.key("source", "signature") == name
    assert store.key("source2", "signature") != name
    assert store.key("source", "signature2") != name
    store._compiler.cache_clear()
    monkeypatch.setattr(backend, "identity", lambda: "another CPU")
    assert store.key("source", "signature") != name
    monkeypatch.undo()
    store._compiler.cache_clear()
    monkeypatch.setattr(store.triton, "__version__", "0.0.0")
    assert store.key("source", "signature") != name
    monkeypatch.undo()
    store._compiler.cache_clear()
    assert store.key("source", "signature") == name


def test_identity_names_the_cpu_and_llvm():
    assert "LLVM" in backend.identity()
    assert "+" in backend.identity()  # the features
