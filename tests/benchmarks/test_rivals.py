"""Online learners side by side, on every trace (see :mod:`tests.traces`): log-loss and time.

The table is printed; ours is to be the best online one, and README.md says where it is not.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.rivals import OURS, best_of_others, lines, side_by_side
from tests.traces import parameters
from vllm_av.replay.trace import read


@pytest.mark.parametrize("path", parameters())
def test_side_by_side(benchmark: Any, path: Path) -> None:
    found = read(path)
    rivals, optimum = benchmark.pedantic(side_by_side, (found,), rounds=1)
    head, *rows = lines(rivals, optimum)
    benchmark.extra_info["log-loss at temperature"] = head[19:]
    benchmark.extra_info.update({row[:19].strip(): row[19:] for row in rows})
    name, loss = best_of_others(rivals)
    share = rivals[OURS].losses["all"] / loss - 1.0
    verdict = "the best online one" if share <= 0.0 else f"NOT the best: {name} is better"
    benchmark.extra_info["ours"] = f"{verdict} ({100 * share:+.2f}% beside {name})"
