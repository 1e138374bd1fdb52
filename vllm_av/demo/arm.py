"""One arm in a process of its own: ``python -m vllm_av.demo.arm FD``.

It reads a job (one line of JSON) from stdin, writes events (one line of JSON each) to the file
descriptor FD, and ends when its work is done or when stdin closes, which happens also when the
parent is killed. stdout and stderr belong to vLLM's log.

Events: ``{"phase": str, "fraction": float | null}`` (null: unknown), then one of
``{"result": ArmResult}`` and ``{"error": VllmAvError.as_dict()}``.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from vllm_av.demo.figures import ArmResult, Load
from vllm_av.demo.probe import Probe
from vllm_av.demo.prompts import choose
from vllm_av.demo.settings import Arm, Pair, Settings, engine_arguments, num_prompts
from vllm_av.errors import DemoError

_WARM_UP_TOKENS = 12


class Events:
    """Tells the parent what is being done, at most ten times a second a phase."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ("", 0.0)

    def phase(self, phase: str, fraction: float | None = None) -> None:
        """``fraction`` of ``phase`` is done."""
        now = time.monotonic()
        known, then = self._last
        if phase != known or now - then > 0.1 or fraction == 1.0:
            self._last = (phase, now)
            self.send({"phase": phase, "fraction": fraction})

    def send(self, event: dict[str, Any]) -> None:
        """Write one event at once."""
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()


def run(arm: Arm, settings: Settings, pair: Pair, events: Events) -> ArmResult:
    """Start the engine of ``arm``, warm it up, measure each concurrency."""
    started = time.monotonic()
    events.phase("importing vLLM")
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    _report_profiling(events)
    events.phase("starting the engine")
    engine = LLMEngine.from_engine_args(EngineArgs(**engine_arguments(arm, settings, pair)))
    probe = Probe(engine)
    most = max(settings.concurrency)
    events.phase("warming up (the first run compiles kernels)")
    # Rows of one and of several requests can take kernels of different shapes.
    for concurrency in {1, most}:
        _measure(engine, probe, settings, concurrency, _WARM_UP_TOKENS, events=None)
    start_seconds = time.monotonic() - started
    loads = [
        _measure(engine, probe, settings, concurrency, settings.max_tokens, events)
        for concurrency in settings.concurrency
    ]
    return ArmResult(
        start_seconds=start_seconds,
        loads=loads,
        coefficients=probe.coefficients(settings.temperature),
        scorer=probe.scorer(),
    )


def _measure(
    engine: Any,
    probe: Probe,
    settings: Settings,
    concurrency: int,
    max_tokens: int,
    events: Events | None,
) -> Load:
    """Keep ``concurrency`` requests in flight until all have ended; no events: a warm-up."""
    count = num_prompts(concurrency) if events else concurrency
    waiting = _requests(engine, settings.temperature, max_tokens, count)
    outputs: list[list[int]] = [[] for _ in range(count)]
    steps = request_steps = 0
    probe.reset()
    began, cpu_began = time.perf_counter(), time.process_time()
    for _ in islice(waiting, concurrency):
        pass
    while engine.has_unfinished_requests():
        steps += 1
        for output in engine.step():
            number = int(output.request_id)
            tokens = list(output.outputs[0].token_ids)
            request_steps += len(tokens) > len(outputs[number])
            outputs[number] = tokens
            if output.finished:
                next(waiting, None)
        if events:
            done = sum(map(len, outputs)) / (count * max_tokens)
            events.phase(f"generating, {concurrency} in flight", done)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return Load(
        concurrency=concurrency,
        requests=count,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        tokens=sum(map(len, outputs)),
        steps=steps,
        request_steps=request_steps,
        drafts=probe.drafts,
        priced_ms=probe.priced_ms(concurrency),
        outputs=outputs,
    )


def _requests(engine: Any, temperature: float, max_tokens: int, count: int) -> Iterator[int]:
    """Each ``next`` sends one more request; its number seeds it, so every arm asks the same."""
    from vllm import SamplingParams

    tokenizer = engine.get_tokenizer()
    rows = [
        tokenizer.apply_chat_template(
            prompt.messages, add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for prompt in choose(count)
    ]
    inputs = engine.renderer.render_cmpl([{"prompt_token_ids": row} for row in rows])
    for number, row in enumerate(inputs):
        parameters = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=number)
        engine.add_request(str(number), row, parameters)
        yield number


def _report_profiling(events: Events) -> None:
    """Show how far the engine is in pricing steps, as adaptive verification does at its start."""
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import AdaptiveVerificationManager

    original = AdaptiveVerificationManager.batches_to_profile

    def batches_to_profile(self: Any, capture_sizes: list[int]) -> Iterator[dict[str, int]]:
        batches = list(original(self, capture_sizes))
        for done, batch in enumerate(batches):
            events.phase("profiling the cost of a step", done / len(batches))
            yield batch

    AdaptiveVerificationManager.batches_to_profile = batches_to_profile


def _end_with_parent() -> None:
    while sys.stdin.read(1):
        pass
    os._exit(1)


def main() -> None:
    """Run the job on stdin; see the module's head."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as stream:
        events = Events(stream)
        try:
            drafter = job["drafter"] and Path(job["drafter"])
            pair = Pair(Path(job["target"]), drafter)
            result = run(Arm(job["arm"]), Settings(**job["settings"]), pair, events)
        except DemoError as error:
            events.send({"error": error.as_dict()})
            raise
        events.send({"result": result.model_dump()})


if __name__ == "__main__":
    main()
