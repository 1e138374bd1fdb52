"""``python -m ci.traces [DRAFTER]``: record the traces that the estimator's bars are measured on.

Eight temperatures mixed, 64 requests in flight, K = 5, every draft verified. What is whole in
``build/traces`` is kept.

Rule: a trace takes its name when it is whole; one that was stopped begins anew.
"""

import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

from vllm_av.demo.drafter import find
from vllm_av.errors import DemoError

TRACES = Path(__file__).resolve().parents[1] / "build/traces"
TEMPERATURES = (0, 0.01, 0.1, 0.3, 0.5, 0.7, 1, 1.3)
# A small target makes them fast: enough for 20,000 labels at the fifth position. Of the others that
# would be hours; these took ten minutes of a core each, for 24,000 labels at the first.
REQUEST_STEPS = {
    "mtp": 65_000,
    "eagle": 24_000,
    "eagle3": 24_000,
    "dflash": 24_000,
    "dspark": 24_000,
}
_OTHERS = 24_000


def missing(drafters: list[str], traces: Path) -> list[str]:
    """Those of ``drafters``, or of all, that have no whole trace.

    Raises:
        DemoError: ``AV-DEMO-OPTION`` if there is no such drafter.
    """
    names = [find(name).name for name in drafters] or list(REQUEST_STEPS)
    return [name for name in names if not (traces / name).is_dir()]


def command(drafter: str, out: Path) -> list[str]:
    """What records the trace of ``drafter`` in the folder ``out``."""
    return [
        str(Path(sys.executable).with_name("vllm-av")),
        *("trace", "record", "--drafter", drafter, "--out", str(out)),
        *("--request-steps", str(REQUEST_STEPS.get(drafter, _OTHERS)), "--concurrency", "64"),
        *chain.from_iterable(("--temperature", str(each)) for each in TEMPERATURES),
    ]


def main() -> None:
    """Record what is missing, one after the other; the exit code of the first that fails."""
    try:
        names = missing(sys.argv[1:], TRACES)
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    TRACES.mkdir(parents=True, exist_ok=True)
    for name in names:
        partial = TRACES / f".{name}"
        shutil.rmtree(partial, ignore_errors=True)
        code = subprocess.run(command(name, partial), check=False).returncode
        if code:
            sys.exit(code)
        partial.rename(TRACES / name)


if __name__ == "__main__":
    main()
