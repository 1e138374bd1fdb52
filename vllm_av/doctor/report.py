"""Collect everything a bug report needs, once, and judge it."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vllm_av import __version__
from vllm_av.doctor.attention import Attention, attention, gpu_of
from vllm_av.doctor.backends import Backend, backends
from vllm_av.doctor.dists import Installed, Plugin, scan
from vllm_av.doctor.findings import (
    VLLM_DISTS,
    Finding,
    find_backends,
    find_machine,
    find_packages,
    find_plugin,
    find_vllm,
)
from vllm_av.doctor.machine import Machine, look
from vllm_av.doctor.patches import Patches, find_patches, read_patches, served
from vllm_av.doctor.settings import settings
from vllm_av.environment import COMPANIONS

PACKAGES = (
    "torch",
    "triton",
    "llvmlite",
    "numpy",
    "transformers",
    "flashinfer-python",
    "pydantic",
    "typer",
    *COMPANIONS,
)
"""Reported whether installed or not, beside vLLM itself."""

PLUGIN_GROUPS = "vllm"
"""Every group that starts so: vLLM's own (``vllm.*``) and ours (``vllm_av.*``)."""


@dataclass(frozen=True)
class Report:
    """What ``vllm-av doctor`` says."""

    machine: Machine
    installed: Installed
    plugins: tuple[Plugin, ...]
    backends: tuple[Backend, ...]
    attention: tuple[Attention, ...]
    patches: Patches
    settings: dict[str, str]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        return all(finding.level != "fault" for finding in self.findings)

    def packages(self) -> dict[str, str | None]:
        """Name -> version, None where not installed; vLLM first."""
        return {name: self.installed.version(name) for name in (*VLLM_DISTS, *PACKAGES)}

    def as_dict(self) -> dict[str, Any]:
        """The report for ``--json``."""
        places = {name: self.installed.dists.get(name) for name in VLLM_DISTS}
        return {
            "vllm_av": __version__,
            "healthy": self.healthy,
            "findings": [asdict(finding) for finding in self.findings],
            "machine": asdict(self.machine),
            "packages": self.packages(),
            "vllm": [
                {"dist": dist.name, "version": dist.version, "location": str(dist.location)}
                for dist in places.values()
                if dist
            ],
            "patches": asdict(self.patches),
            "plugins": [asdict(plugin) for plugin in self.plugins],
            "triton_backends": [asdict(backend) for backend in self.backends],
            "attention": [asdict(layers) for layers in self.attention],
            "settings": self.settings,
        }


def examine(
    environ: Mapping[str, str] | None = None,
    machine: Machine | None = None,
    installed: Installed | None = None,
    patches: Patches | None = None,
) -> Report:
    """Look at this environment; each argument stands in for what would be looked up."""
    environ = os.environ if environ is None else environ
    machine = machine or look()
    installed = installed or scan()
    patches = patches or read_patches()
    findings = (
        *find_vllm(installed, served()),
        *find_patches(patches),
        *find_plugin(installed, environ),
        *find_backends(installed),
        *find_packages(installed, environ),
        *find_machine(machine, installed, environ),
    )
    return Report(
        machine=machine,
        installed=installed,
        plugins=tuple(installed.plugins(PLUGIN_GROUPS)),
        backends=tuple(backends(installed, machine, environ)),
        attention=attention(gpu_of(machine, installed, environ), installed, patches),
        patches=patches,
        settings=settings(environ),
        findings=findings,
    )
