"""Compiled kernels on disk.

Rule: a file holds what its name says or is not used. The name is the sha256 of everything that the
machine code depends on: the kernel's source and its callees', what these take from their
surroundings, the signature, this compiler's own source, Triton, LLVM, the CPU. Files are written
beside and renamed, so a process killed while writing leaves no half file under a real name, and two
processes may write the same one; a checksum inside finds what a broken disk or a hand did.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import triton

from vllm_av.cache import cache_dir
from vllm_av.cpu import backend
from vllm_av.errors import SetupError

_MAGIC = b"vllm_av kernel 1\n"


@cache
def _compiler() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()} triton {triton.__version__} {backend.identity()}"


def key(source: str, signature: str) -> str:
    """The name of a compiled kernel."""
    return hashlib.sha256("\0".join((source, signature, _compiler())).encode()).hexdigest()


def read(name: str) -> bytes | None:
    """The object file of that name, or None if there is none to be trusted."""
    try:
        content = (cache_dir() / "kernels" / f"{name}.o").read_bytes()
    except (OSError, SetupError):
        return None
    head = len(_MAGIC) + hashlib.sha256().digest_size
    code = content[head:]
    if content[:head] != _MAGIC + hashlib.sha256(code).digest():
        return None
    return code


def write(name: str, code: bytes) -> None:
    """Keep an object file; a folder that cannot be written means that nothing is kept."""
    with suppress(OSError, SetupError):
        folder = cache_dir() / "kernels"
        folder.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name[:16]}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(code).digest() + code)
            os.replace(temporary, folder / f"{name}.o")
        except OSError:
            os.unlink(temporary)
            raise
