"""docs/trace-replay.md names every key of the JSON, every scorer and every bin."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.replay.synthetic import synthetic
from tests.unit.replay.traces import write
from vllm_av.replay import optimum, stream
from vllm_av.replay.learners import LEARNERS
from vllm_av.replay.run import Wish, run
from vllm_av.replay.scoring import FROM_STEP, MOST_EXACT, regimes

TEXT = (Path(__file__).parents[3] / "docs" / "trace-replay.md").read_text()


def test_every_key_is_there(tmp_path: Path) -> None:
    trace = synthetic(steps=20, requests=4)
    columns = {name: trace[name] for name in trace.columns}
    answer: dict[str, Any] = run(
        write(tmp_path / "t.parquet", columns), Wish("upstream", from_step=0)
    ).as_dict()
    part = answer["overall"]
    found = [*answer, *answer["counts"], *answer["seconds"], *part]
    found += [*part["conditional"], *part["optimum"], *answer["fits"]["log_odds"]]
    found += [*answer["fits"]["log_odds"]["pooled"], *LEARNERS]
    found += [*optimum.FEATURES, optimum.HEAD]
    assert [key for key in found if f"`{key}`" not in TEXT] == []


def test_the_numbers_are_those_of_the_code() -> None:
    every = np.array([0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 1.0, 2.0, *np.linspace(3, 4, 9)], np.float32)
    *bins, last = regimes(every).names
    plain = " ".join(TEXT.split())
    assert f"the bins {', '.join(bins)} and {last}" in plain
    assert f"more than {MOST_EXACT}," in plain
    assert f"--from-step {FROM_STEP}]" in plain
    assert f"up to {stream.LONGEST_GAP} in a row" in plain
    assert f"C=1e{round(np.log10(1.0 / optimum.PENALTY))})" in plain
