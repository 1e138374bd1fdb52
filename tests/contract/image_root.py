"""A folder laid out as one of vLLM's images, from the pinned wheel; and the build's own command.

Rule: the command is taken from ``ci/Dockerfile`` and finds no other file of the checkout than those
that ``.dockerignore`` lets through. What cannot be there is the image's own Python: this one runs.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ci.hybrid.metadata import metadata
from ci.image.labels import with_labels
from vllm_av.patching.tree import record_line
from vllm_av.patching.wheels import pinned_wheel

ROOT = Path(__file__).parents[2]
VLLM = "0.33.0"
SITES = {
    "gpu": "usr/local/lib/python3.12/dist-packages",
    "cpu": "opt/venv/lib/python3.12/site-packages",
}
"""Where the Dockerfiles of vLLM 0.33.0 install it: the system's Python, and an environment."""
NEEDED = ("numpy", "pydantic", "rich", "typer", "llvmlite")
EPOCH = "1700000000"
DATA = "vllm_av/data/"
MOUNT = "/mnt/vllm_av"
DIGEST = f"sha256:{'1' * 64}"


@dataclass(frozen=True)
class Image:
    """A root and the folder of its packages."""

    root: Path
    site: Path
    target: str

    def files(self) -> dict[str, tuple[str, int, int, int]]:
        """Every file's sum, mode, owner and time, by its path from the root."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                facts = path.stat()
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                owner = facts.st_uid * 65536 + facts.st_gid
                name = str(path.relative_to(self.root))
                found[name] = (digest, facts.st_mode, owner, facts.st_mtime_ns)
        return found

    def folders(self) -> set[str]:
        """Every folder, by its path from the root."""
        paths = (path for path in self.root.rglob("*") if path.is_dir())
        return {str(path.relative_to(self.root)) for path in paths}


def lay_out(root: Path, target: str, *, only: set[str] | None = None) -> Image:
    """Make a root.

    Args:
        only: these files of the wheel; None: all of its Python. Its metadata are always there.
    """
    site = root / SITES[target]
    site.mkdir(parents=True)
    record = []
    with zipfile.ZipFile(pinned_wheel(VLLM)) as archive:
        taken = _python(archive) if only is None else only
        for name in archive.namelist():
            is_info = name.startswith("vllm-")
            if not is_info and name not in taken:
                continue
            content = archive.read(name)
            if target == "cpu" and is_info:
                name = name.replace(f"vllm-{VLLM}", f"vllm-{VLLM}+cpu")
            if name.endswith("METADATA") and target == "cpu":
                content = metadata(content.decode()).encode()
            write(site / name, content)
            if not name.endswith("RECORD"):
                record.append(record_line(name, content))
    info = next(site.glob("vllm-*.dist-info"))
    write(info / "RECORD", "\n".join([*record, f"{info.name}/RECORD,,", ""]).encode())
    write(site.parents[2] / "bin/vllm", b"#!/usr/bin/python3\nraise SystemExit(9)\n", 0o755)
    for name in NEEDED:
        there = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version(name)}\n"
        write(site / f"{name}-{version(name)}.dist-info/METADATA", there.encode())
    return Image(root, site, target)


def _python(archive: zipfile.ZipFile) -> set[str]:
    return {name for name in archive.namelist() if name.endswith(".py")}


def write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file of the base image, a while before the build."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    os.utime(path, (int(EPOCH) - 1000, int(EPOCH) - 1000))


def context(folder: Path) -> Path:
    """What an engine would be sent, with a wheel of the checkout.

    Its labels are fresh: whether those of the checkout are is a test's own question.
    """
    wheels = folder / "build/image"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for pattern in let_through():
        for path in ROOT.glob(pattern):
            if "build" not in path.relative_to(ROOT).parts[:1]:
                target = folder / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
    dockerfile = folder / "ci/Dockerfile"
    dockerfile.write_text(with_labels(dockerfile.read_text()))
    return folder


def without_data(there: Path, folder: Path) -> Path:
    """The same context, with the drafters left out of the wheel: they are most of its bytes."""
    shutil.copytree(there, folder)
    wheel = next((folder / "build/image").glob("*.whl"))
    whole = wheel.rename(wheel.with_suffix(".whole"))
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(wheel, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(".dist-info/RECORD"):
                lines = content.splitlines(keepends=True)
                content = b"".join(line for line in lines if not line.startswith(DATA.encode()))
            if not name.startswith(DATA):
                new.writestr(name, content)
    whole.unlink()
    return folder


def let_through() -> list[str]:
    """The patterns of ``.dockerignore``, which keeps everything else back."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    first, *others = [line for line in lines if line and not line.startswith("#")]
    assert first == "*"
    assert all(line.startswith("!") for line in others)
    return [line[1:] for line in others]


def instructions(text: str) -> list[tuple[str, str]]:
    """A Dockerfile's instructions with their arguments, joined lines as one."""
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", "", plain)
    words = (line.partition(" ") for line in joined.splitlines() if line.strip())
    return [(name, arguments) for name, _, arguments in words]


def stages(text: str) -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, by its name; what stands before them is under ``""``."""
    found: dict[str, list[tuple[str, str]]] = {"": []}
    for name, arguments in instructions(text):
        if name == "FROM":
            found[arguments.partition(" AS ")[2]] = []
        found[list(found)[-1]].append((name, arguments))
    return found


def build(there: Path, image: Image, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the one command of a stage, with the root in place of ``/``."""
    (line,) = (
        arguments
        for name, arguments in stages((there / "ci/Dockerfile").read_text())[image.target]
        if name == "RUN"
    )
    shell = re.sub(r"--mount=\S+ *", "", line)
    shell = shell.replace(f"{MOUNT}/wheels", f"{there}/build/image").replace(MOUNT, str(there))
    shell = shell.replace("python3", shlex.quote(sys.executable), 1)
    base = f"docker.io/vllm/base:v{VLLM}@{DIGEST}"
    return subprocess.run(
        ["sh", "-c", f"{shell} --root {shlex.quote(str(image.root))}"],
        cwd=image.root.parent,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME")},
            **{"SOURCE_DATE_EPOCH": EPOCH, "GPU_BASE": base, "CPU_BASE": base},
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
