"""The bars that the estimator is held to, measured on a trace; tests/full/test_bars.py asks.

python -m tests.bars FILE [SCORER]
"""

import sys

from tests.bars.courses import Course
from tests.bars.measures import calibration, mixed, scorer, single
from tests.bars.shift import shift
from tests.bars.start import cold_start
from vllm_av.replay import trace


def _show(
    kind: str, courses: dict[tuple[float, float, int], Course], steps: tuple[int, int]
) -> None:
    for (ds, di, place), found in courses.items():
        left = " ".join(f"{found.left(step):.3f}" for step in steps)
        print(
            f"  {kind}: slope {ds:+} intercepts {di:+} place {place}: {left} worst"
            f" {100 * found.worst:+.2f}%  ({found.loss[0]:.3f} to {found.optimum:.3f})"
        )


def main() -> None:
    path, *rest = sys.argv[1:]
    build = scorer(rest[0] if rest else "online_estimator")
    found = trace.read(path)
    print("bar 1: single temperatures (<= 1%), then mixed (all <= 1.5%)")
    for gaps in (single(found, build), mixed(found, build)):
        for name, gap in gaps.items():
            print(
                f"  T {name:>5}  {gap.labels:>7} labels  {gap.loss:.4f}  optimum {gap.optimum:.4f}"
                f"  {100 * gap.share:+.2f}%  {gap.by}"
            )
    print("bar 2: ECE, equal mass, of the survival product (<= .02)")
    for name, answer in calibration(found, build).items():
        print(
            f"  position {name:>3}  {answer['labels']:>7} rows  ECE {answer['ece_mass']:.4f}"
            f"  chance {answer['chance_mass']:.4f}  labels of the trace {answer['trace_labels']}"
        )
    print("bar 3: excess left at batch 64 after 10 (<= .5), 50 (<= .1); at 1 after 200 (<= .5)")
    _show("64", cold_start(found, build, 64, 60), (10, 50))
    _show("1", cold_start(found, build, 1, 2000, places=6), (200, 2000))
    _show("1, serial", cold_start(found, build, 1, 2000, places=6, serial=True), (200, 2000))
    print("bar 4: after the first intercept's jump")
    for by in (1.0, -1.0):
        fast, slow = shift(found, build, 64, by), shift(found, build, 2, by, most=4000)
        last = fast.after(200)
        over = 100 * (last / fast.optimum - 1)
        print(
            f"  64: {by:+}: old fit {fast.held_to:.4f} at the jump {fast.loss[0]:.4f} now"
            f" {last:.4f} optimum {fast.optimum:.4f} {over:+.2f}% (<= 3%)"
        )
        print(f"   2: {by:+}: worst against the old fit {100 * slow.worst:+.2f}% (<= 5%)")


if __name__ == "__main__":
    main()
