"""Records a trace from the offline engine: requests in flight, until enough drafts are graded.

Rule: what runs is vLLM's own engine with the same switch that a server has; nothing but the names
of the workloads, and when to stop, is told to the recording from here.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vllm_av.config.text import read_object
from vllm_av.config.whole import require_object
from vllm_av.demo.progress import Show
from vllm_av.errors import Code, TraceError, VllmAvError, told
from vllm_av.replay.asked import Asked, from_file, held_out, workloads
from vllm_av.replay.writer import check_folder

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    # Logs are not the answer, which goes to stdout.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "WARNING",
    # Where every draft is verified, costs decide nothing, so they need not be those of long texts.
    "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN": "32",
}
_RUNNER = "engine_core.engine_core.model_executor.driver_worker.worker.model_runner"
_NEW_TOKENS = range(48, 129)

_BLOCK = "adaptive_verification_config"

Advance = Callable[[float], object]
Pair = tuple[dict[str, Any], list[Asked]]
"""vLLM's engine arguments, and what is asked."""


@dataclass(frozen=True)
class Plan:
    """How much is recorded, of which traffic.

    Args:
        out: the trace's folder.
        request_steps: how many drafts of requests, each of up to K tokens.
        concurrency: requests in flight.
        temperatures: of the requests, drawn evenly.
        everything: whether every draft is verified, or those that the budget admits.
        seed: of the order, the lengths and the samples.

    Raises:
        TraceError: ``AV-TRACE-OPTION``; ``AV-TRACE-WRITE``.
    """

    out: Path
    request_steps: int = 20_000
    concurrency: int = 64
    temperatures: tuple[float, ...] = (1.0,)
    everything: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        _check("--request-steps", self.request_steps, 1 <= self.request_steps <= 10**9, "1 to 1e9")
        _check("--concurrency", self.concurrency, 1 <= self.concurrency <= 1024, "1 to 1024")
        for temperature in self.temperatures:
            # vLLM raises those below 0.01 to that value.
            fair = temperature == 0 or 0.01 <= temperature <= 2
            _check("--temperature", temperature, fair, "0, or 0.01 to 2")
        _check("--seed", self.seed, 0 <= self.seed < 2**32, "0 to 4294967295")
        check_folder(self.out)


@dataclass(frozen=True)
class Recorded:
    """What was recorded, and how long the engine took for it."""

    out: str
    request_steps: int
    requests: int
    parts: int
    seconds: float


def carried_pair(
    drafter: str, num_speculative_tokens: int, names: list[str] | None, show: Show
) -> Pair:
    """A drafter of this package with its target, and the held-out prompts of some workloads.

    Raises:
        DemoError, TraceError, SetupError: there is no such one, or a checkpoint or prompt lacks.
    """
    from vllm_av.demo.comparison import pair_of
    from vllm_av.demo.settings import ENVIRONMENT, Arm, Settings, engine_arguments

    settings = Settings(drafter, num_speculative_tokens=num_speculative_tokens)
    asked = held_out(names or workloads())
    pair = pair_of(drafter, show)
    os.environ.update(ENVIRONMENT)
    arguments = engine_arguments(Arm.ADAPTIVE, settings, pair)
    config = json.loads((pair.target / "config.json").read_text(encoding="utf-8"))
    longest = min(arguments["max_model_len"], config["max_position_embeddings"])
    return {**arguments, "max_model_len": longest}, asked


def own_pair(
    model: str | None,
    speculative_config: str | None,
    prompts: Path | None,
    names: list[str] | None,
    engine_arguments: str,
) -> Pair:
    """A pair and prompts of the user's own.

    Raises:
        TraceError: ``AV-TRACE-OPTION``, ``AV-TRACE-PROMPTS``.
        ConfigError: the speculative config or the arguments are not a JSON object.
    """
    if not (model and speculative_config and prompts) or names:
        raise TraceError(
            Code.TRACE_OPTION,
            given="a pair of your own, with an option missing or --workload beside it",
            allowed="--model, --speculative-config and --prompts together; workloads are named in "
            "the file",
            fix="give all three, or --drafter alone",
        )
    spec = dict(require_object(read_object(speculative_config, "--speculative-config")))
    if (block := spec.get(_BLOCK)) is not None:
        require_object(block)
    more = require_object(read_object(engine_arguments, "--engine-arguments"))
    return {**more, "model": model, "speculative_config": spec}, from_file(prompts)


def record(
    plan: Plan, engine_arguments: dict[str, Any], asked: list[Asked], advance: Advance
) -> Recorded:
    """Run the engine until enough is recorded; the requests that are then in flight are dropped.

    Args:
        plan: how much of what.
        engine_arguments: vLLM's, with a speculative config that drafts; adaptive verification is
            switched on here.
        asked: what is asked, again and again.
        advance: is told the fraction that is recorded.

    Raises:
        TraceError: ``AV-TRACE-ENGINE`` where the engine does not start, or not in this process;
            ``AV-TRACE-WRITE`` where the trace could not be written to its end.
        VllmAvError: adaptive verification cannot be as it is configured.
    """
    spec = _with_trace(engine_arguments["speculative_config"], plan)
    arguments = {**engine_arguments, "speculative_config": spec, "max_num_seqs": plan.concurrency}
    engine = _started(arguments)
    runner = _reach(engine, _RUNNER)
    recorder = _reach(runner, "speculator.acceptance_scorer")
    holders: dict[int, str] = runner.req_states.index_to_req_id
    names: dict[str, str | None] = {}
    # vLLM adds a suffix of its own to the names of requests.
    recorder.workload = lambda slot: names[holders[slot].partition("-")[0]]
    began = time.perf_counter()
    sending = _requests(engine, plan, asked, names)
    for _ in range(plan.concurrency):
        next(sending)
    while (done := recorder.grades.drafts) < plan.request_steps and not recorder.writer.failure:
        advance(done / plan.request_steps)
        for output in engine.step():
            if output.finished:
                next(sending)
    seconds = time.perf_counter() - began
    recorder.close()
    if recorder.writer.failure is not None:
        raise recorder.writer.failure
    return Recorded(
        str(plan.out), recorder.grades.drafts, len(names), recorder.writer.parts, seconds
    )


def _started(arguments: dict[str, Any]) -> Any:
    os.environ.update(_ENVIRONMENT)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    try:
        checked = EngineArgs(**arguments)
    except TypeError as error:  # a key that it has not
        raise TraceError(
            Code.TRACE_OPTION,
            given=f"--engine-arguments: {error}",
            allowed="the arguments of vLLM's EngineArgs, by their names in Python",
            fix="correct the name",
        ) from error
    except (OSError, ValueError) as error:  # a model that is not there
        raise _not_started(error) from error
    try:
        return LLMEngine.from_engine_args(checked)
    except VllmAvError:
        raise
    except (OSError, TypeError, ValueError) as error:
        raise _not_started(error) from error


def _not_started(error: Exception) -> TraceError:
    """What vLLM, and the libraries that it loads models with, make of a user's mistake."""
    text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else told(error)
    return TraceError(
        Code.TRACE_ENGINE,
        given=f"vLLM does not start: {' '.join(text.split())[:400]}",
        allowed="a pair and arguments with which vLLM serves",
        fix="correct the option; `vllm-av config validate FILE` checks the speculative config",
    )


def _with_trace(spec: dict[str, Any], plan: Plan) -> dict[str, Any]:
    block = {**(spec.get(_BLOCK) or {}), "trace": str(plan.out.absolute())}
    if plan.everything:
        block["exploration"] = 1
    return {
        **spec,
        "enable_adaptive_verification": True,
        _BLOCK: block,
    }


def _requests(
    engine: Any, plan: Plan, asked: list[Asked], names: dict[str, str | None]
) -> Iterator[None]:
    """Each ``next`` sends one more request, and notes its workload."""
    from vllm import SamplingParams

    tokenizer = engine.get_tokenizer()
    draw = random.Random(plan.seed)
    number = 0
    while True:
        for each in draw.sample(asked, len(asked)):
            parameters = SamplingParams(
                temperature=draw.choice(plan.temperatures),
                max_tokens=draw.choice(_NEW_TOKENS),
                seed=plan.seed + number,
            )
            row = {"prompt_token_ids": each.tokens(tokenizer, number // len(asked))}
            (inputs,) = engine.renderer.render_cmpl([row])
            names[str(number)] = each.workload
            engine.add_request(str(number), inputs, parameters)
            number += 1
            yield


def _reach(start: Any, names: str) -> Any:
    found = start
    for name in names.split("."):
        if not hasattr(found, name):
            raise TraceError(
                Code.TRACE_ENGINE,
                given=f"the engine has no {name!r}, on the way to {names}",
                allowed="an engine in this process, on one device, and a vLLM with the patches",
                fix="leave out tensor parallelism, or serve with "
                '"adaptive_verification_config": {"trace": "FOLDER"}',
            )
        found = getattr(found, name)
    return found


def _check(option: str, given: object, good: bool, allowed: str) -> None:
    if not good:
        raise TraceError(
            Code.TRACE_OPTION,
            given=f"{option} {given}",
            allowed=f"{option} takes {allowed}",
            fix="choose a value in that range",
        )
