"""The machine: operating system, processor, memory, compiler, GPUs. Reads files, imports nothing.

Rule: what cannot be found out is None or empty, never an error.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from vllm_av.environment import COMPILERS

CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")
"""The instruction sets that decide which of vLLM's CPU kernels run."""

_DRIVER = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)*\b")
_QUERY = "name,compute_cap,memory.total,driver_version"


@dataclass(frozen=True)
class Gpu:
    """One GPU, as far as its driver tells."""

    vendor: str
    name: str
    capability: str | None = None
    memory_mib: int | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Machine:
    """What a bug report needs of the machine."""

    system: str
    python: str
    executable: str
    cpu: str | None
    cpu_flags: tuple[str, ...]
    cores: int
    """Cores that this process may use."""
    memory_gib: float | None
    compiler: str | None
    gpus: tuple[Gpu, ...]


def look(root: Path = Path("/")) -> Machine:
    """This machine. ``root`` is where ``proc`` and ``sys`` lie."""
    model, flags = _cpu(root)
    return Machine(
        system=_system(root),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        executable=sys.executable,
        cpu=model,
        cpu_flags=flags,
        cores=_cores(),
        memory_gib=_memory(root),
        compiler=next((path for name in COMPILERS if (path := shutil.which(name))), None),
        gpus=(*_nvidia(root), *_amd(root)),
    )


def cpu_name(root: Path = Path("/")) -> str | None:
    """The processor's model."""
    return _cpu(root)[0]


def nvidia_driver(root: Path = Path("/")) -> str | None:
    """The version of the driver of NVIDIA's GPUs, from a file that containers see too."""
    found = _DRIVER.search("".join(_lines(root / "proc/driver/nvidia/version")[:1]))
    return found[0] if found else None


def _system(root: Path) -> str:
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    for line in _lines(root / "etc/os-release"):
        if line.startswith("PRETTY_NAME="):
            return f"{line.partition('=')[2].strip().strip(chr(34))}, {kernel}"
    return kernel


def _cpu(root: Path) -> tuple[str | None, tuple[str, ...]]:
    facts: dict[str, str] = {}
    for line in _lines(root / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    present = set(facts.get("flags", "").split())
    return facts.get("model name"), tuple(flag for flag in CPU_FLAGS if flag in present)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _memory(root: Path) -> float | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemTotal:"):
            return round(int(line.split()[1]) / 2**20, 1)
    return None


def _nvidia(root: Path) -> list[Gpu]:
    """From nvidia-smi, else from the driver's own files, which containers keep without the tool."""
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=20, check=True
            )
            return parse_nvidia_smi(answer.stdout)
        except (OSError, subprocess.SubprocessError):
            pass
    found = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        for line in _lines(file):
            if line.startswith("Model:"):
                found.append(Gpu("nvidia", line.partition(":")[2].strip()))
    return found


def parse_nvidia_smi(text: str) -> list[Gpu]:
    """The lines of ``nvidia-smi --query-gpu=name,compute_cap,memory.total,driver_version``."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4:
            name, capability, memory, driver = fields
            mib = int(memory) if memory.isdigit() else None
            found.append(Gpu("nvidia", name, capability, mib, driver))
    return found


def _amd(root: Path) -> list[Gpu]:
    """Compute nodes with a graphics version; the CPU's own node has 0."""
    found = []
    for file in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        for line in _lines(file):
            name, _, value = line.partition(" ")
            if name == "gfx_target_version" and value.strip() not in ("", "0"):
                found.append(Gpu("amd", f"gfx target {value.strip()}"))
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
