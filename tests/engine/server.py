"""``vllm serve`` as a program of its own, and what the tests ask of it over HTTP."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_START_SECONDS = 150


class Server(NamedTuple):
    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def get(self, path: str) -> str:
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return json.loads(self._ask("POST", path, json.dumps(body)))

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


@contextmanager
def serving(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[Server]:
    """A server that is up. It and all that it started are killed if they live in the end.

    Args:
        arguments: of the program ``vllm``, but for the address.
        environment: beside this process's own.
        log: the file that is given what the server prints.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    whole = {**os.environ, "VLLM_LOGGING_LEVEL": "INFO", **environment}
    # The folder's conftest keeps engines in the tests' process; here the default counts.
    whole.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    program = str(Path(sys.executable).with_name("vllm"))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *arguments, "--host", "127.0.0.1", "--port", str(port)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=whole,
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
