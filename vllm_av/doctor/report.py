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
from vllm_av.doctor.patches import Patches, find_patches, read_patches, served
from vllm_av.doctor.servers import Running, Titled
from vllm_av.doctor.settings import settings
from vllm_av.doctor.verdicts import Judged, judge
from vllm_av.environment import COMPANIONS
from vllm_av.machine import Machine, look
from vllm_av.preflight.backends.flashinfer import DISTRIBUTION, FlashInfer, decode_kernel
from vllm_av.preflight.backends.flashinfer import installed as find_flashinfer

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
    flashinfer: FlashInfer
    decode_kernel: str | None
    """The one that FlashInfer would pick on this machine's GPU; None where it has none."""
    patches: Patches
    settings: dict[str, str]
    servers: tuple[Judged, ...]
    titled: tuple[Titled, ...]
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
            "flashinfer": asdict(self.flashinfer) | {"decode_kernel": self.decode_kernel},
            "servers": [asdict(server) for server in self.servers],
            "other_engines": [asdict(process) for process in self.titled],
            "settings": self.settings,
        }


def examine(
    environ: Mapping[str, str] | None = None,
    machine: Machine | None = None,
    installed: Installed | None = None,
    patches: Patches | None = None,
    running: Running | None = None,
    *,
    ask_vllm: bool = False,
) -> Report:
    """Look at this environment; each argument stands in for what would be looked up.

    Args:
        running: the servers to judge; none without it.
        ask_vllm: whether vLLM's own classes may be asked about them, which takes seconds each.
    """
    environ = os.environ if environ is None else environ
    machine = machine or look()
    installed = installed or scan()
    patches = patches or read_patches()
    running = running or Running()
    gpu = gpu_of(machine, installed, environ)
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
        attention=attention(gpu, installed, patches),
        flashinfer=_flashinfer(installed),
        decode_kernel=decode_kernel(gpu) if gpu else None,
        patches=patches,
        settings=settings(environ),
        servers=tuple(judge(server, installed, ask_vllm=ask_vllm) for server in running.servers),
        titled=running.titled,
        findings=findings,
    )


def _flashinfer(installed: Installed) -> FlashInfer:
    dist = installed.dists.get(DISTRIBUTION)
    return find_flashinfer([str(dist.location)]) if dist else FlashInfer(None, None, None)
