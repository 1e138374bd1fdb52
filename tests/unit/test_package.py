"""What importing the package does, and what it offers."""

import subprocess
import sys
from pathlib import Path

import vllm_av
import vllm_av.doctor

ROOT = Path(vllm_av.__file__).parent
HEAVY = ("vllm", "torch", "triton", "llvmlite", "transformers")
MAY_IMPORT_VLLM = ("cpu", "demo", "plugin.py", "seams", "training", "triton_shim")
# cli/demo.py and __main__.py belong to what they start; a scorer imports the estimator's kernels.
NOT_LIGHT = {
    ("cli", "demo.py"),
    ("__main__.py",),
    ("estimator", "kernels.py"),
    ("estimator", "online.py"),
    ("estimator", "tempered", "kernels.py"),
    ("estimator", "tempered", "online.py"),
    ("estimator", "tempered", "scoring.py"),
    ("replay", "draft_features.py"),
    ("replay", "recorder.py"),
}


def _light_modules() -> list[str]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        if parts[0] in MAY_IMPORT_VLLM or parts in NOT_LIGHT:
            continue
        name = ".".join(("vllm_av", *parts)).removesuffix(".py").removesuffix(".__init__")
        found.append(name)
    return found


def test_no_light_module_imports_vllm_or_torch() -> None:
    modules = _light_modules()
    assert {"vllm_av", "vllm_av.errors", "vllm_av.doctor.report", "vllm_av.cli.app"} <= set(modules)
    program = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
    heavy = [module for module in {HEAVY!r} if module in sys.modules]
    assert not heavy, f"{{name}} imports {{heavy}}"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_exports_are_exact() -> None:
    assert vllm_av.__all__ == ["__version__"]
    assert vllm_av.doctor.__all__ == ["Report", "examine"]
