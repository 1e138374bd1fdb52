"""How long a million rows take: `vllm-av trace replay`, one thread, reading and figures included.
At most 10 s, for steps of 64 request-steps as for steps of 1.
"""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.replay.synthetic import synthetic
from tests.unit.replay.traces import write
from vllm_av.replay.run import Wish, run

ROWS = 1_000_000
BAR = 10.0
TEMPERATURES = (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 1.0, 1.3)


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = synthetic(
        steps=ROWS // (64 * 5),
        requests=64,
        positions=5,
        temperatures=TEMPERATURES,
        intercepts=(0.3, 0.2, 0.1, 0.0, -0.1),
    )
    columns: dict[str, Any] = {name: made[name] for name in made.columns}
    # Every feature there can be, so that every optimum is fitted.
    columns |= {"entropy": abs(made["log_odds"]), "entropy_scaled": abs(made["log_odds_scaled"])}
    columns |= {"margin": abs(made["log_odds"]), "margin_scaled": abs(made["log_odds_scaled"])}
    columns["workload"] = pa.array(["docs"] * made.num_rows).dictionary_encode()
    info = {"version": 1, "num_speculative_tokens": 5, "censoring": "none"}
    return write(tmp_path_factory.mktemp("trace") / "million.parquet", columns, info)


@pytest.mark.parametrize("batch", [64, 1])
@pytest.mark.parametrize("scorer", ["online_estimator", "pooled_estimator", "upstream"])
def test_a_million_rows(benchmark: Any, million: Path, scorer: str, batch: int) -> None:
    used: list[float] = []

    def once() -> Any:
        start = time.process_time()
        result = run(million, Wish(scorer, batch=batch))
        used.append(time.process_time() - start)
        return result

    result = benchmark.pedantic(once, rounds=2)
    assert result.counts["rows"] == pytest.approx(ROWS, rel=0.001)
    # Processor seconds: others may have work on the machine too.
    benchmark.extra_info[f"processor seconds (bar {BAR:g})"] = round(min(used), 2)
    benchmark.extra_info["of the clock"] = {
        name: round(seconds, 2) for name, seconds in result.seconds.items()
    }
