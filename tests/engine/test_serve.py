"""``vllm serve`` on the CPU, adaptive verification on, over HTTP: the line that the demonstration
prints, in float32 so that equal requests must get equal answers.

The tests share one server and run in the order of this file; the last one stops it.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from vllm_av.demo.prompts import choose
from vllm_av.demo.settings import ENVIRONMENT, Arm, Settings, serve_command

_SETTINGS = Settings(concurrency=(8,), num_speculative_tokens=5)
_START_SECONDS = 150
_STOP_SECONDS = 60


class Server(NamedTuple):
    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def get(self, path: str) -> str:
        return self._ask("GET", path, None)

    def chat(self, text: str, **options: Any) -> str:
        """The answer to one message of the user."""
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 24, **options}
        answer = self._ask("POST", "/v1/chat/completions", json.dumps(body))
        if not options.get("stream"):
            return json.loads(answer)["choices"][0]["message"]["content"]
        events = [line.removeprefix("data: ") for line in answer.splitlines() if line]
        assert events.pop() == "[DONE]"
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
        assert len(deltas) > 2, "the answer came in one piece"
        return "".join(delta.get("content") or "" for delta in deltas)

    def _ask(self, method: str, path: str, body: str | None) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        assert response.status == 200, f"{path}: {response.status} {text}"
        return text

    def healthy(self) -> bool:
        try:
            self.get("/health")
        except OSError:
            return False
        return True

    def counters(self) -> dict[str, float]:
        """Prometheus samples by name, summed over their labels."""
        totals: dict[str, float] = {}
        for line in self.get("/metrics").splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                bare = name.partition("{")[0]
                totals[bare] = totals.get(bare, 0.0) + float(value)
        return totals


@pytest.fixture(scope="module")
def server(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    _, *arguments = serve_command(Arm.ADAPTIVE, _SETTINGS, Path(target))
    changes = ["--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, **ENVIRONMENT, "VLLM_LOGGING_LEVEL": "INFO"}
    # The folder's conftest keeps engines in the tests' process; here the default counts.
    environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING")
    log = tmp_path_factory.mktemp("serve") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("vllm")), *arguments, *changes],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    server = Server(process, port, log)
    try:
        _await_healthy(server)
        yield server
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_healthy(server: Server) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not server.healthy():
        tail = "\n".join(server.log.read_text(errors="replace").splitlines()[-40:])
        assert server.process.poll() is None, f"the server ended at its start:\n{tail}"
        assert time.monotonic() < deadline, f"the server did not start in time:\n{tail}"
        time.sleep(0.2)


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


def test_a_signal_ends_it_cleanly_and_leaves_nobody(server: Server) -> None:
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
