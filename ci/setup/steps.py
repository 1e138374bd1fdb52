"""The steps in order: what each depends on, and what it does.

Rule: a step may be killed at any point and started again. Each leaves its stamp only when its
work is whole, and a stamp holds the key of everything before it.
"""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ci.setup.child import Runner, reason
from ci.setup.environment import make_venv
from ci.setup.machine import check_machine
from ci.setup.pins import installed, normal, read_pins, sweep
from ci.setup.place import Place, clean_env, digest
from ci.setup.repair import companions_to_remove
from vllm_av.errors import Code, SetupError

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index, asked for torch alone and only where the configured one lacks ``+cpu``."""

IMPORTS = "import torch, transformers; from vllm import LLM"
"""LLM, since `import vllm` alone imports so little that it works where nothing else does."""


@dataclass(frozen=True)
class Step:
    """One step.

    Args:
        name: as shown; also the name of its stamp and its log.
        key: a hash of what its result depends on, beside the steps before it.
        work: does it, or raises :class:`SetupError`.
        holds: whether its result is still there, where others than set-up can undo it; asked
            on every run.
    """

    name: str
    key: Callable[[Place], str]
    work: Callable[[Place, Runner], None]
    holds: Callable[[Place], bool] = lambda place: True


def _machine(place: Place, runner: Runner) -> None:
    check_machine(place)


def _venv(place: Place, runner: Runner) -> None:
    make_venv(place, runner, read_pins(place.lock))


def _torch(place: Place, runner: Runner) -> None:
    pins = read_pins(place.lock)
    sweep(place.site, pins)
    pin = f"torch=={pins['torch']}"
    code, output = _pip(place, runner, [pin])
    if code and "No matching distribution found" in output:
        code, output = _pip(place, runner, ["--index-url", TORCH_INDEX, pin])
    if code:
        raise _pip_failed(runner, pin, output)
    _require(place, runner, {"torch": pins["torch"]})


def _packages(place: Place, runner: Runner) -> None:
    pins = read_pins(place.lock)
    sweep(place.site, pins)
    rest = {name: version for name, version in pins.items() if name != "torch"}
    wanted = runner.log.with_suffix(".txt")
    wanted.write_text("".join(f"{name}=={version}\n" for name, version in rest.items()))
    before = runner.log.stat().st_size if runner.log.exists() else 0

    def fraction() -> float:
        collected = _collected(runner.log, before)
        return 0.5 * min(collected / len(rest), 1) + 0.5 * len(installed(place.site)) / len(pins)

    code, output = _pip(place, runner, ["-r", str(wanted)], fraction)
    if code:
        raise _pip_failed(runner, "the locked packages", output)
    _require(place, runner, pins)


def _collected(log: Path, before: int) -> int:
    with log.open("rb") as stream:
        stream.seek(before)
        return stream.read().count(b"\nCollecting ")


def _project(place: Place, runner: Runner) -> None:
    sweep(place.site, ["vllm-av"])
    code, output = _pip(place, runner, ["--no-build-isolation", "--editable", str(place.root)])
    if code:
        raise _pip_failed(runner, "vllm_av itself", output)


def _imports(place: Place, runner: Runner) -> None:
    code, output = runner.run([str(place.venv_python), "-c", IMPORTS])
    remove = companions_to_remove(code, output, installed(place.site))
    if remove:
        runner.run([str(place.venv_python), "-m", "pip", "uninstall", "--yes", *remove])
        code, output = runner.run([str(place.venv_python), "-c", IMPORTS])
    if code:
        raise SetupError(
            Code.SETUP_IMPORT,
            given=f"`{IMPORTS}` fails in .venv ({reason(output)})",
            allowed="an environment in which it works",
            fix=f"read {runner.shown}; `make clean` and again for a fresh environment",
        )


def apply_patches(place: Place, runner: Runner) -> None:
    """Apply the series to the environment's vLLM."""
    tool = [str(place.venv_python), "-m", "vllm_av", "patch", "apply"]
    code, output = runner.run(tool)
    if code:
        raise SetupError(
            Code.SETUP_PATCHES,
            given=f"the patch series could not be applied ({reason(output)})",
            allowed="the vLLM of the lock, as installed or already patched",
            fix=f"read {runner.shown}; `make clean` and again for a fresh environment",
        )


def is_patched(place: Place) -> bool:
    """Is the series applied still? `vllm-av patch revert` and every installer of vLLM undo it."""
    command = [str(place.venv_python), "-m", "vllm_av", "patch", "status"]
    asked = subprocess.run(command, cwd=place.root, env=clean_env(), capture_output=True)
    return asked.returncode == 0


def _pip(
    place: Place,
    runner: Runner,
    arguments: list[str],
    fraction: Callable[[], float] | None = None,
) -> tuple[int, str]:
    # --no-compile: most of vLLM and its dependencies is never imported here.
    command = [str(place.venv_python), "-m", "pip", "install", "--no-deps", "--no-compile"]
    return runner.run([*command, "--progress-bar", "off", *arguments], fraction)


def _pip_failed(runner: Runner, what: str, output: str) -> SetupError:
    return SetupError(
        Code.SETUP_INSTALL,
        given=f"pip could not install {what} ({reason(output)})",
        allowed="a package index that serves the versions in requirements.lock, and disk for them",
        fix=f"read {runner.shown}, mend it, and run make again",
    )


def _require(place: Place, runner: Runner, pins: Mapping[str, str]) -> None:
    """A pip that is configured to install nothing, or elsewhere, reports success all the same."""
    there = installed(place.site)
    lacking = [f"{name}=={pins[name]}" for name in pins if there.get(name) != pins[name]]
    if lacking:
        said = f"pip says that all is well, and {lacking[0]} is not in {place.site}"
        raise _pip_failed(runner, f"{len(lacking)} of the locked packages", said)


def _nothing(place: Place) -> str:
    return ""


def _venv_key(place: Place) -> str:
    # Another vLLM needs a fresh environment: the patches added files that pip does not know.
    return digest(_vllm_pins(place))


def _vllm_pins(place: Place) -> list[str]:
    return sorted(f"{n}=={v}" for n, v in read_pins(place.lock).items() if "vllm" in normal(n))


def _torch_key(place: Place) -> str:
    return digest([read_pins(place.lock)["torch"]])


def _lock_key(place: Place) -> str:
    return digest([place.lock.read_bytes()])


def _project_key(place: Place) -> str:
    return digest([(place.root / "pyproject.toml").read_bytes(), str(place.root)])


def patches_key(place: Place) -> str:
    """A hash of every series."""
    files = sorted(path for path in (place.root / "patches").rglob("*") if path.is_file())
    return digest(
        part for path in files for part in (str(path.relative_to(place.root)), path.read_bytes())
    )


STEPS = (
    Step("machine", _nothing, _machine),
    Step("environment", _venv_key, _venv),
    Step("torch", _torch_key, _torch),
    Step("packages", _lock_key, _packages),
    Step("project", _project_key, _project),
    Step("imports", _nothing, _imports),
    Step("patches", patches_key, apply_patches, is_patched),
)
