"""``python -m ci.stage [DRAFTER]``: the stage of ``vllm_av.training`` that makes a drafter.

Rule: a drafter is called by one name everywhere, that of ``vllm-av demo --drafter``.
"""

import sys

from vllm_av.demo.drafter import find
from vllm_av.errors import DemoError
from vllm_av.training.install import stage_of

ALL = "all"


def stage(drafter: str) -> str:
    """The one stage; a DSpark drafter is trained with its head, which can then be left out.

    Raises:
        DemoError: ``AV-DEMO-OPTION`` if there is no such drafter.
    """
    return stage_of(find(drafter))


def main() -> None:
    """Print the stage, or all where no drafter is named; exit code 2 where there is no such one."""
    names = " ".join(sys.argv[1:])
    try:
        print(stage(names) if names else ALL)
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
