"""Which Triton backends are registered, and which would be active. Triton is not imported.

Rule: an answer is given only where Triton's own drivers leave no doubt; else it is "unknown".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vllm_av.doctor.dists import Installed
from vllm_av.doctor.findings import TRITON_GROUP, is_cpu_build
from vllm_av.machine import Machine

Active = Literal["yes", "no", "unknown"]

_VENDORS = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}
"""Backend, named as the vendor of its GPUs -> the variable that hides them."""


@dataclass(frozen=True)
class Backend:
    """One registered backend."""

    name: str
    dist: str
    value: str
    active: Active
    why: str


def backends(installed: Installed, machine: Machine, environ: Mapping[str, str]) -> list[Backend]:
    """The registered backends. Triton raises at its first launch if two are active."""
    found = []
    for plugin in installed.plugins(TRITON_GROUP):
        if plugin.dist == "vllm-av":
            active, why = _ours(installed, machine, environ)
        else:
            active, why = _gpus(plugin.name, installed, machine, environ)
        found.append(Backend(plugin.name, plugin.dist, plugin.value, active, why))
    return found


def _ours(installed: Installed, machine: Machine, environ: Mapping[str, str]) -> tuple[Active, str]:
    if not is_cpu_build(installed, environ):
        return "no", "vLLM's platform is not the CPU"
    for name in _VENDORS:
        if _gpus(name, installed, machine, environ)[0] == "yes":
            return "no", f"the backend {name} is active"
    return "yes", "vLLM's platform is the CPU"


def _gpus(
    name: str, installed: Installed, machine: Machine, environ: Mapping[str, str]
) -> tuple[Active, str]:
    if name not in _VENDORS:
        return "unknown", "its driver decides"
    hides = _VENDORS[name]
    if "cpu" in (installed.version("torch") or "").partition("+")[2]:
        return "no", "torch is a CPU build"
    if not any(gpu.vendor == name for gpu in machine.gpus):
        return "no", f"no {name} GPU is here"
    if environ.get(hides) == "":
        return "no", f"{hides} is empty"
    return "yes", f"an {name} GPU is here"
