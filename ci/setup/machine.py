"""What the machine must have before anything is written."""

import os
import platform
import shutil
import subprocess
import sys

from ci.setup.place import Place
from vllm_av.environment import COMPILERS
from vllm_av.errors import Code, SetupError

FREE_GIB = 6


def check_machine(place: Place) -> None:
    """Raise what is missing, first things first.

    Raises:
        SetupError: ``AV-SETUP-MACHINE``.
    """
    _check_platform(sys.platform, platform.machine())
    _check_venv_module(place.python)
    _check_compiler(os.environ.get("CC"))
    if not place.stamps.is_dir():
        _check_disk(shutil.disk_usage(place.root).free)


def _check_platform(system: str, processor: str) -> None:
    if system != "linux" or processor != "x86_64":
        raise _lacking(
            given=f"this machine is {system} on {processor}",
            allowed="Linux on x86_64, which the lock is made for",
            fix="use such a machine, or install the package's extra `cpu` by hand",
        )


def _check_venv_module(python: str) -> None:
    answer = subprocess.run(
        [python, "-c", "import ensurepip, venv"], capture_output=True, check=False
    )
    if answer.returncode:
        raise _lacking(
            given=f"{python} has no venv module",
            allowed="a Python with venv and ensurepip",
            fix="install it (Debian: apt-get install python3.11-venv)",
        )


def _check_compiler(wish: str | None) -> None:
    """A compiler that is there but cannot link (no libc headers) counts as missing."""
    names = [*(wish.split()[:1] if wish else []), *COMPILERS]
    for name in names:
        if shutil.which(name) and _compiles(name):
            return
    raise _lacking(
        given=f"no C compiler that works (tried {', '.join(dict.fromkeys(names))})",
        allowed="one that compiles and links a C program",
        fix="install one (Debian: apt-get install gcc libc6-dev)",
    )


def _compiles(compiler: str) -> bool:
    program = b"#include <stdio.h>\nint main(void) { return 0; }\n"
    command = [compiler, "-x", "c", "-", "-o", "/dev/null"]
    return subprocess.run(command, input=program, capture_output=True, check=False).returncode == 0


def _check_disk(free_bytes: int) -> None:
    free = free_bytes / 2**30
    if free < FREE_GIB:
        raise _lacking(
            given=f"{free:.1f} GiB of disk are free here",
            allowed=f"at least {FREE_GIB} GiB",
            fix="free some, or clone to a larger disk",
        )


def _lacking(given: str, allowed: str, fix: str) -> SetupError:
    return SetupError(Code.SETUP_MACHINE, given, allowed, fix)
