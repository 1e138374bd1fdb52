"""The machine, read from files that stand for it."""

import subprocess
from pathlib import Path

import pytest

from vllm_av import machine
from vllm_av.machine import Gpu, look, parse_nvidia_smi


@pytest.fixture(autouse=True)
def _no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)


def _write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_machine_that_tells_nothing_raises_nothing(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert (found.cpu, found.cpu_flags, found.memory_gib) == (None, (), None)
    assert (found.compiler, found.gpus) == (None, ())
    assert found.cores >= 1


def test_processor_memory_and_system(tmp_path: Path) -> None:
    _write(
        tmp_path,
        "proc/cpuinfo",
        "model name\t: Fast CPU\nflags\t: fpu avx2 amx_bf16 avx512f\n\nmodel name\t: Other\n",
    )
    _write(tmp_path, "proc/meminfo", "MemTotal:       25165824 kB\nMemFree: 1 kB\n")
    _write(tmp_path, "etc/os-release", 'NAME="x"\nPRETTY_NAME="Some Linux 12"\n')
    found = look(tmp_path)
    assert found.cpu == "Fast CPU"
    assert found.cpu_flags == ("avx2", "avx512f", "amx_bf16")
    assert found.memory_gib == 24.0
    assert found.system.startswith("Some Linux 12, ")


def test_an_nvidia_driver_without_its_tool(tmp_path: Path) -> None:
    _write(
        tmp_path, "proc/driver/nvidia/gpus/0000:01/information", "Model: \t NVIDIA H200\nIRQ: 1\n"
    )
    assert look(tmp_path).gpus == (Gpu("nvidia", "NVIDIA H200"),)


def test_amd_nodes_but_not_the_processors_own(tmp_path: Path) -> None:
    nodes = "sys/class/kfd/kfd/topology/nodes"
    _write(tmp_path, f"{nodes}/0/properties", "cpu_cores_count 8\ngfx_target_version 0\n")
    _write(tmp_path, f"{nodes}/1/properties", "cpu_cores_count 0\ngfx_target_version 90402\n")
    assert look(tmp_path).gpus == (Gpu("amd", "gfx target 90402"),)


def test_nvidia_smi_is_read_and_what_it_does_not_know_left_out() -> None:
    text = "NVIDIA H200, 9.0, 143771, 570.1\nOld GPU, [N/A], [N/A], 570.1\nNo devices were found\n"
    assert parse_nvidia_smi(text) == [
        Gpu("nvidia", "NVIDIA H200", "9.0", 143771, "570.1"),
        Gpu("nvidia", "Old GPU", "[N/A]", None, "570.1"),
    ]


def test_an_nvidia_smi_that_fails_falls_back_to_the_drivers_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(machine.subprocess, "run", fails)
    _write(tmp_path, "proc/driver/nvidia/gpus/0/information", "Model: NVIDIA L4\n")
    assert look(tmp_path).gpus == (Gpu("nvidia", "NVIDIA L4"),)


def test_an_nvidia_smi_that_prints_no_text_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf 'GPU \\377, 9.0, 1, 570.1\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(machine.shutil, "which", lambda name: str(tool))
    assert look(tmp_path / "root").gpus == (Gpu("nvidia", "GPU \ufffd", "9.0", 1, "570.1"),)
