"""Which Triton backends are registered, and which would be active. Triton is not imported.

Rule: an answer is given only where Triton's own drivers leave no doubt; else it is "unknown".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vllm_av.doctor.dists import Installed
from vllm_av.doctor.findings import TRITON_GROUP, is_cpu_build
from vllm_av.doctor.machine import Machine


@dataclass(frozen=True)
class Backend:
    """One registered backend."""

    name: str
    dist: str
    value: str
    active: Literal["yes", "no", "unknown"]
    why: str


def backends(installed: Installed, machine: Machine, environ: Mapping[str, str]) -> list[Backend]:
    """The registered backends. Triton raises at its first launch if two are active."""
    return [
        Backend(p.name, p.dist, p.value, *_active(p.name, p.dist, installed, machine, environ))
        for p in installed.plugins(TRITON_GROUP)
    ]


def _active(
    name: str, dist: str, installed: Installed, machine: Machine, environ: Mapping[str, str]
) -> tuple[Literal["yes", "no", "unknown"], str]:
    if dist == "vllm-av":
        if is_cpu_build(installed):
            return "yes", "vLLM's platform is the CPU"
        return "no", "vLLM's platform is not the CPU"
    vendor = {"nvidia": ("nvidia", "CUDA"), "amd": ("amd", "HIP")}.get(name)
    if vendor is None:
        return "unknown", "its driver decides"
    gpu, hides = vendor
    if "cpu" in (installed.version("torch") or "").partition("+")[2]:
        return "no", "torch is a CPU build"
    if not any(found.vendor == gpu for found in machine.gpus):
        return "no", f"no {gpu} GPU is here"
    if environ.get(f"{hides}_VISIBLE_DEVICES") == "":
        return "no", f"{hides}_VISIBLE_DEVICES is empty"
    return "yes", f"an {gpu} GPU is here"
