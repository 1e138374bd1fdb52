"""The steps of ``.venv-033``, run by :mod:`ci.setup.run`.

Rule: everything here comes from ``.venv`` and one pinned wheel, and pip installs nothing, so a
change of ``.venv`` makes all of it anew.
"""

from pathlib import Path

from ci.hybrid.mixture import mix
from ci.hybrid.share import share
from ci.setup.child import Runner, reason
from ci.setup.environment import make_anew, refuse_foreign
from ci.setup.place import Place, digest
from ci.setup.run import ROOT
from ci.setup.steps import Step, apply_patches, is_patched, patches_key
from vllm_av.errors import Code, SetupError
from vllm_av.patching.series import PIN

VERSION = "0.33.0"

_FETCH = f"from vllm_av.patching.wheels import pinned_wheel; print(pinned_wheel({VERSION!r}))"

_CHECK = """\
import torch, transformers
from vllm import LLM
from vllm.platforms import current_platform
current_platform.import_kernels()
assert current_platform.is_cpu(), "vLLM does not take the CPU for its platform"
assert hasattr(torch.ops._C, "rms_norm"), "the operators of the CPU build are not there"
"""


def place(root: Path = ROOT) -> Place:
    """Where the mixture goes; the Python of ``.venv`` makes it."""
    python = str(Place(root, "").venv_python)
    return Place(root, python, name=".venv-033", job="setup-033")


def _base(there: Place) -> Place:
    """The environment that it is made from."""
    return Place(there.root, there.python)


def _environment(there: Place, runner: Runner) -> None:
    base = _base(there)
    refuse_foreign(there)
    make_anew(there, runner, "--without-pip")
    site = base.site.relative_to(base.venv)
    vllm = [path.name for path in base.site.glob("vllm_*") if not path.name.startswith("vllm_av-")]
    keep_out = [base.stamps.name, *(f"{site}/{name}" for name in ("vllm", *vllm))]
    share(base.venv, there.venv, keep_out)


def _mixture(there: Place, runner: Runner) -> None:
    code, output = runner.run([there.python, "-c", _FETCH])
    if code:
        raise SetupError(
            Code.SETUP_INSTALL,
            given=f"the wheel of vLLM {VERSION} cannot be had ({reason(output)})",
            allowed="a package index that serves it, and disk for it",
            fix=f"read {runner.shown}, mend it, and run make again",
        )
    wheel = Path(output.splitlines()[-1])
    mix(wheel, _base(there).site, there.site, runner.progress.update)


def _imports(there: Place, runner: Runner) -> None:
    code, output = runner.run([str(there.venv_python), "-c", _CHECK])
    if code:
        raise SetupError(
            Code.SETUP_IMPORT,
            given=f"vLLM {VERSION} fails over the operators of the CPU build ({reason(output)})",
            allowed="the vLLM of the lock, for whose operators it was tried",
            fix=f"read {runner.shown}; `make clean` and again for fresh environments",
        )


def _environment_key(there: Place) -> str:
    stamp = _base(there).stamps / "imports"
    if not stamp.is_file():
        raise SetupError(
            Code.SETUP_VENV,
            given=f"{_base(there).venv} is not set up",
            allowed="a whole one, which this environment is made from",
            fix="run: make setup",
        )
    return digest([stamp.read_bytes()])


def _mixture_key(there: Place) -> str:
    return digest([(there.root / "patches" / VERSION / PIN).read_bytes()])


def _imports_key(there: Place) -> str:
    return ""


STEPS = (
    Step("environment", _environment_key, _environment),
    Step("vllm", _mixture_key, _mixture),
    Step("imports", _imports_key, _imports),
    Step("patches", patches_key, apply_patches, is_patched),
)
