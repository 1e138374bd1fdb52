"""``vllm-av trace record``, as a program, with a pair and prompts of one's own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine import models
from tests.engine.harness import engine_arguments, speculation
from tests.engine.sampling import TINY_STEPS
from vllm_av.replay.trace import read


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("vllm-av"))
    command = [program, "trace", "record", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture
def pair(random_pair: tuple[str, str], tmp_path: Path) -> list[str]:
    """The options for a tiny pair and for prompts of two workloads and of none."""
    target, draft = random_pair
    models.tokenizer(Path(target))
    spec = speculation(draft, "draft_model", False, TINY_STEPS)
    more: dict[str, Any] = engine_arguments(target, None, max_model_len=64)
    for name in ("model", "speculative_config"):
        del more[name]
    prompts = tmp_path / "prompts.jsonl"
    lines = [
        {"text": "t1 t2 t3", "workload": "counting"},
        {"text": "t5", "workload": "other"},
        "t4",
    ]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [
        *("--model", target, "--speculative-config", json.dumps(spec)),
        *("--engine-arguments", json.dumps(more), "--prompts", str(prompts)),
    ]


def test_what_was_asked_for_is_recorded(pair: list[str], tmp_path: Path) -> None:
    out = tmp_path / "t"
    options = ["--temperature", "0", "--temperature", "0.5", "--request-steps", "200"]
    run = _run(*pair, *options, "--concurrency", "4", "--out", str(out), "--json")
    assert run.returncode == 0, run.stderr[-3000:]
    answer = json.loads(run.stdout)
    assert answer["request_steps"] >= 200
    trace = read(out)
    assert (trace["position"] == 0).sum() == answer["request_steps"] < 200 + 4
    assert trace.info.censoring == "none"
    assert set(trace["temperature"]) == {0.0, 0.5}
    assert set(trace.words["workload"]) == {"counting", "other"}
    assert set(trace["workload"]) == {-1, 0, 1}
    # The folder is taken now, which is told before vLLM is loaded.
    again = _run(*pair, "--out", str(out))
    assert again.returncode == 2
    assert again.stderr.startswith(f"error: [AV-TRACE-WRITE] the folder of the trace, {out}, holds")
    assert len(again.stderr.splitlines()) == 1


@pytest.mark.parametrize("wrong", ["model", "draft"])
def test_a_model_that_is_not_there_is_one_line(pair: list[str], tmp_path: Path, wrong: str) -> None:
    options = pair.copy()
    if wrong == "model":
        options[1] = str(tmp_path / "nowhere")
    else:
        options[3] = json.dumps(json.loads(options[3]) | {"model": str(tmp_path / "nowhere")})
    run = _run(*options, "--out", str(tmp_path / "t"))
    assert run.returncode == 2, run.stderr[-3000:]
    last = run.stderr.splitlines()[-1]
    assert last.startswith("error: [AV-TRACE-ENGINE] vLLM does not start: ")
    assert "nowhere" in last
    assert not (tmp_path / "t").exists()
