"""``ci/new-version``: does the package index have a newer vLLM than the matrix?

Asks pip, wherever this user's pip is told to look, for each distribution of vLLM, and compares with
the newest version whose wheel is pinned. Exit codes: 0 there is none; 1 there is, whether or not
the others could be asked; 2 one could not be asked. Rule: with the standard library and pip alone.
"""

import re
import sys
from pathlib import Path

from vllm_av.errors import VllmAvError
from vllm_av.patching.series import versions
from vllm_av.patching.tree import NAMES
from vllm_av.patching.version import is_release, key_of
from vllm_av.patching.wheels import read_pin, run_pip

PATCHES = Path(__file__).resolve().parents[1] / "patches"
NONE, NEWER, UNASKED = 0, 1, 2


def main() -> int:
    """Print what is new; the exit code."""
    try:
        pins = [read_pin(PATCHES, version) for version in versions(PATCHES)]
    except VllmAvError as error:
        print(f"error: {error}", file=sys.stderr)
        return UNASKED
    every = {pin.version for pin in pins}
    codes = {NONE}
    for name in NAMES:
        # Of a distribution without a series, whatever is newer than all series is new.
        known = {pin.version for pin in pins if pin.distribution == name} or every
        have = max(known, key=key_of)
        try:
            newer = [version for version in ask(name) if key_of(version) > key_of(have)]
        except LookupError as error:
            print(f"{name}: pip could not tell its versions ({error})", file=sys.stderr)
            codes.add(UNASKED)
            continue
        for version in newer:
            there = version in every
            then = "has a series, try it" if there else f"vllm-av patch new-version {version}"
            print(f"{name} {version} is newer than {have}: {then}")
            codes.add(NEWER)
        if not newer:
            print(f"{name}: nothing is newer than {have}")
    return NEWER if NEWER in codes else max(codes)


def ask(name: str) -> list[str]:
    """The releases that pip finds of one distribution for this machine, oldest first.

    Raises:
        LookupError: pip did not tell.
    """
    asked = run_pip(["index", "versions", "--ignore-requires-python", name], PATCHES)
    listed = re.search(r"^Available versions: (.+)$", "\n".join(asked.lines), re.M)
    if asked.failed or listed is None:
        raise LookupError(asked.reason)
    found = (version.strip() for version in listed[1].split(","))
    return sorted(filter(is_release, found), key=key_of)


if __name__ == "__main__":
    sys.exit(main())
