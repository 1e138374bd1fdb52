"""``vllm serve`` on the CPU, adaptive verification on, over HTTP: the line that the demonstration
prints, in float32 so that equal requests must get equal answers, with a trace recorded and what the
estimator learns kept.

The tests share one server and run in the order of this file; the last but one stops it.
"""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.engine.server import Server, serving
from vllm_av.demo.drafter import carried
from vllm_av.demo.prompts import choose
from vllm_av.demo.settings import ENVIRONMENT, Arm, Pair, Settings, serve_command
from vllm_av.replay.trace import read

_SETTINGS = Settings(concurrency=(8,), num_speculative_tokens=5)
_STOP_SECONDS = 60


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces") / "served"


@pytest.fixture(scope="module")
def server(target: str, trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    _, *arguments = serve_command(Arm.ADAPTIVE, _SETTINGS, Pair(Path(target), carried("eagle")))
    config = arguments.index("--speculative-config") + 1
    spec = json.loads(arguments[config])
    spec["adaptive_verification_config"] = {
        "trace": str(trace),
        "state_file": str(trace.with_name("state")),
    }
    arguments[config] = json.dumps(spec)
    log = tmp_path_factory.mktemp("serve") / "log"
    environment = {**ENVIRONMENT, "VLLM_LOGGING_LEVEL": "INFO"}
    with serving([*arguments, "--dtype", "float32"], environment, log) as server:
        yield server


def test_the_engine_runs_in_a_process_of_its_own(server: Server) -> None:
    children = psutil.Process(server.process.pid).children(recursive=True)
    assert any("EngineCore" in " ".join(child.cmdline()) for child in children)
    assert "Using V2 Model Runner" in server.log.read_text(errors="replace")


def test_requests_in_parallel_are_answered(server: Server) -> None:
    asked = [
        (prompt.text, {"temperature": number % 2, "stream": number % 3 == 0, "seed": number})
        for number, prompt in enumerate(choose(8))
    ]
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda request: server.chat(request[0], **request[1]), asked))
    assert all(answer.strip() for answer in answers)
    assert len(set(answers)) == len(answers)


def test_a_greedy_answer_is_the_same_each_time(server: Server) -> None:
    text = "What is the capital of France?"
    first = server.chat(text, temperature=0)
    assert "Paris" in first
    assert server.chat(text, temperature=0) == first
    assert server.chat(text, temperature=0, stream=True) == first
    # Beside others it is verified in ragged batches, and is the same still.
    with ThreadPoolExecutor(5) as pool:
        others = [pool.submit(server.chat, prompt.text, temperature=1) for prompt in choose(4)]
        beside = pool.submit(server.chat, text, temperature=0)
        assert beside.result() == first
        assert all(other.result() for other in others)


def test_metrics_count_the_speculation(server: Server) -> None:
    before = server.counters()
    server.chat("Count from one to ten.", temperature=0)
    after = server.counters()
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        counter = f"vllm:spec_decode_{name}_total"
        assert after[counter] > before[counter] > 0, counter


def test_a_signal_ends_it_cleanly_and_leaves_nobody(server: Server, trace: Path) -> None:
    family = psutil.Process(server.process.pid).children(recursive=True)
    assert family
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(_STOP_SECONDS + 30) == 0
    gone, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
    assert len(gone) == len(family)
    assert not server.healthy()
    log = server.log.read_text(errors="replace")
    # vLLM may log an EngineDeadError of its output handler here: it stops the engine before it.
    # On a busy machine vLLM sends its workers a second signal after five seconds; killed is none.
    assert "request processing complete; starting resource teardown" in log
    assert "Application shutdown complete" in log
    assert "force killing" not in log
    # What the estimator has learnt to the end is in its file.
    with np.load(trace.with_name("state"), allow_pickle=False) as state:
        identity = json.loads(state["identity"].tobytes())
        steps, labels = int(state["counters"][0]), state["labels"]
    assert identity["scorer"] == "online_estimator"
    assert steps > 20
    assert labels.sum() > 100
    assert "AV-STATE" not in log


def test_what_was_served_is_recorded_to_its_end(server: Server, trace: Path) -> None:
    assert server.process.poll() == 0
    found = read(trace)
    # One request at least for each of those that the other tests have sent.
    assert len(set(found["request"])) > 15
    assert set(found["temperature"]) == {0.0, 1.0}
    assert found.labelled.sum() > 150
    assert found.finite.all()
    assert found.info.censoring == "budget"
    assert found.info.method == "eagle"
