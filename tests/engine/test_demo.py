"""The demonstration on the real engine: its figures against vLLM's own, and all of it once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import psutil
import pytest

from tests.engine.harness import STEPS, Engine
from vllm_av.demo.probe import Probe
from vllm_av.demo.settings import Arm

_TOKENS = 8


@contextmanager
def _probed(engine: Engine) -> Iterator[Probe]:
    """A probe that leaves the shared engine as it was."""
    probe = Probe(engine.llm.llm_engine)
    try:
        yield probe
    finally:
        del engine.runner.execute_model
        del engine.runner.speculator.observe_verification


@pytest.mark.parametrize(("fixed_cost", "trims"), [(1e6, False), (10.0, True)])
def test_labels_and_predictions_are_the_estimators_own(
    adaptive: Engine, prompts: list[list[int]], fixed_cost: float, trims: bool
) -> None:
    from vllm_av.estimator import kernels

    adaptive.price(fixed_cost)
    # Which sums by position, in rounds that are longer than this test.
    scorer = adaptive.new_scorer(scorer="pooled_estimator")
    with (
        mock.patch.object(adaptive.scorer, "scorer", scorer),
        _probed(adaptive) as probe,
        adaptive.recorded() as steps,
    ):
        adaptive.greedy(prompts[:6], batch=3, max_tokens=20)
    positions = probe.drafts.positions
    assert len(positions) == STEPS
    assert sum(position.labels for position in positions) > 20
    sums = scorer.estimator._sums
    assert sums[kernels.LABELS].tolist() == [position.labels for position in positions]
    residuals = [position.accepted - position.predicted for position in positions]
    assert sums[kernels.NOW + 4].tolist() == pytest.approx(residuals, abs=1e-3)
    assert probe.drafts.scheduled == sum(sum(step.scheduled) for step in steps)
    assert probe.drafts.verified == sum(sum(step.admitted) for step in steps)
    assert (probe.drafts.verified < probe.drafts.scheduled) == trims


def test_the_whole_demonstration(target: str, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "vllm_av", "demo", "--json"),
        *("--concurrency", "2", "--max-tokens", str(_TOKENS), "--temperature", "0"),
    ]
    environment = {**os.environ, "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN": "32"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    none, fixed, adaptive = (answer["arms"][arm.name.lower()]["loads"][0] for arm in Arm)
    assert none["scheduled"] == none["verified"] == 0
    assert none["tokens_per_step"] == 1.0
    assert fixed["scheduled"] == fixed["verified"] > fixed["accepted"] > 0
    assert adaptive["scheduled"] >= adaptive["verified"] > adaptive["accepted"] > 0
    for load in (none, fixed, adaptive):
        assert 0 < load["tokens"] <= load["requests"] * _TOKENS
        assert load["tokens_per_second"] > 0
    estimator = answer["arms"]["adaptive"]["estimator"]
    assert estimator["slopes"]["log q"] > 0
    assert len(estimator["intercepts"]) == answer["settings"]["num_speculative_tokens"]
    assert any("got the same tokens in all three arms" in said for said in answer["says"])
    # No terminal here: plain lines, each arm by its name.
    assert all(f"{arm}: starting the engine" in done.stderr for arm in Arm)
    assert target in answer["serve"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_its_arm(target: str, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "vllm_av", "demo"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        assert demo.stderr.readline() == "no speculation: importing vLLM\n"
        family = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(number)
        assert "Traceback" not in demo.stderr.read()
    assert demo.returncode == (130 if number == signal.SIGINT else -signal.SIGTERM)
    assert len(family) == 1
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
