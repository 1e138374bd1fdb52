"""``python -m ci.matrix``: write the matrix of versions into the README's first screen.

``--check`` writes nothing and ends with 1 where the README has another one, with 2 where
the matrix or the README cannot be read. Rule: what the matrix
says stands beside the series (:mod:`vllm_av.patching.matrix`).
"""

import sys
from pathlib import Path

from ci.readme import between, write
from vllm_av.errors import VllmAvError
from vllm_av.patching.matrix import matrix

PATCHES = Path(__file__).resolve().parents[1] / "patches"
BEGIN, END = "<!-- written by python -m ci.matrix -->\n", "<!-- end of the matrix -->\n"


def section() -> str:
    """What shall stand between the two marks."""
    return f"\n{matrix(PATCHES).table()}\n"


def main() -> int:
    """Write it, or compare it; the exit code."""
    try:
        if "--check" not in sys.argv[1:]:
            write(BEGIN, END, section())
        elif between(BEGIN, END) != section():
            print("README.md: the matrix is stale; run: python -m ci.matrix", file=sys.stderr)
            return 1
    except VllmAvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:  # there is no README, or it lacks a mark
        print(f"error: README.md: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
