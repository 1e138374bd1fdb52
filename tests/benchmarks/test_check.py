"""How long ``vllm-av check`` takes, as a user runs it, and beside what it cannot do without.

    by the table           beside the start of Python with typer and pydantic   at most   3 s
    by vLLM's own classes  beside the import of torch and vLLM's config         at most  15 s

The bars are of the wall clock on a machine that does nothing else; processor seconds, which stand
beside, are the same on a busy one.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CONFIGS = Path(__file__).parents[1] / "configs"
BARS = {"table": 3, "vllm": 15}
"""Seconds."""
BESIDE = {"table": "import typer, pydantic", "vllm": "import torch, vllm.config"}
ROUNDS = {"table": 5, "vllm": 2}


class Run(NamedTuple):
    """One run of Python."""

    output: str
    wall: float
    processor: float
    """Of it and of what it started, in seconds."""


def _run(*words: str) -> Run:
    environ = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words], env=environ, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - start, os.times()
    assert done.returncode in (0, 1), done.stderr
    used = after.children_user + after.children_system
    return Run(done.stdout, wall, used - before.children_user - before.children_system)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3.2"])
@pytest.mark.parametrize("ways", BARS)
def test_one_answer(benchmark: Any, ways: str, name: str) -> None:
    speculative = {
        "method": "eagle3",
        "model": str(CONFIGS / "llama-3.1-8b-eagle3"),
        "num_speculative_tokens": 7,
        "enable_adaptive_verification": True,
    }
    asked = ("check", "--json", "--gpu", "h100", "--capabilities", ways)
    model = ("--model", str(CONFIGS / name), "--speculative-config", json.dumps(speculative))
    runs: list[Run] = []

    def once() -> None:
        runs.append(_run("-m", "vllm_av", *asked, *model))

    benchmark.pedantic(once, rounds=ROUNDS[ways])
    answer = json.loads(runs[0].output)
    assert answer["verdict"] in ("yes", "no")
    sources = [each["chosen"]["source"] for each in answer["layers"]]
    assert sources
    assert all((source == "asked") == (ways == "vllm") for source in sources)
    beside = min(_run("-c", BESIDE[ways]).processor for _ in range(ROUNDS[ways]))
    bare = min(_run("-c", "pass").processor for _ in range(5))
    best = min(run.processor for run in runs)
    figures = benchmark.extra_info
    figures[f"seconds (bar {BARS[ways]})"] = round(min(run.wall for run in runs), 2)
    figures["processor seconds"] = round(best, 2)
    figures[f"times `{BESIDE[ways]}`"] = round(best / beside, 2)
    figures["times a bare interpreter"] = round(best / bare, 1)
