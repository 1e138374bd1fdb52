"""``python3 -m ci.image``: see the package."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ci.image.refusal import Refusal, not_written
from ci.image.steps import Job, build
from ci.image.targets import TARGETS

DOCKERFILE = Path(__file__).resolve().parents[1] / "Dockerfile"


def main(argv: Sequence[str] | None = None) -> int:
    """Make an image's files. 0: done; 1: refused, in one line; 2: the command line is wrong."""
    parser = argparse.ArgumentParser(prog="python3 -m ci.image", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, required=True)
    parser.add_argument("--base", required=True, help="the base image's reference")
    parser.add_argument("--wheels", type=Path, required=True, help="the folder of the wheel")
    parser.add_argument("--root", type=Path, default=Path("/"), help="of the image")
    asked = parser.parse_args(argv)
    try:
        text = DOCKERFILE.read_text(encoding="utf-8")
        job = Job(asked.root, TARGETS[asked.target], asked.base, asked.wheels, text)
        lines = build(job, dict(os.environ))
    except Refusal as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {not_written(error, 'nothing was changed')}", file=sys.stderr)
        return 1
    except Exception as error:
        if not hasattr(error, "as_dict"):  # one of vllm_av's, which cannot be imported here
            raise
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
