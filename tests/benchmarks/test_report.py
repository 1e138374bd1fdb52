"""How long a page about a million rows with every column takes: `vllm-av trace report`, one thread,
reading and writing included. At most 30 s, for steps of 64 request-steps as for steps of 1.
"""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.replay.report.full import WORDS, full
from tests.unit.replay.traces import write
from vllm_av.replay.report.make import make

ROWS = 1_000_000
BAR = 30.0
TEMPERATURES = (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 1.0, 1.3)


def written(path: Path, requests: int, positions: int) -> Path:
    made = full(
        steps=ROWS // (requests * positions),
        requests=requests,
        positions=positions,
        temperatures=TEMPERATURES,
        intercepts=[1.0 - 0.1 * k for k in range(positions)],
    )
    columns: dict[str, Any] = dict(made.columns)
    for name, words in WORDS.items():
        numbers = pa.array(made[name], mask=made[name] < 0)
        columns[name] = pa.DictionaryArray.from_arrays(numbers, list(words))
    info = {"version": 1, "num_speculative_tokens": positions, "censoring": "none"}
    return write(path, columns, info)


@pytest.mark.parametrize(("requests", "positions"), [(64, 5), (1, 5), (64, 16)])
def test_a_page_about_a_million_rows(
    benchmark: Any, tmp_path: Path, requests: int, positions: int
) -> None:
    trace = written(tmp_path / "million.parquet", requests, positions)
    used: list[float] = []

    def once() -> Any:
        start = time.process_time()
        made = make(trace, tmp_path / "page.html")
        used.append(time.process_time() - start)
        return made

    made = benchmark.pedantic(once, rounds=1)
    assert made.report.facts.rows == pytest.approx(ROWS, rel=0.001)
    # Processor seconds: others may have work on the machine too.
    benchmark.extra_info[f"processor seconds (bar {BAR:g})"] = round(used[0], 2)
    benchmark.extra_info["kilobytes"] = made.bytes // 1000
