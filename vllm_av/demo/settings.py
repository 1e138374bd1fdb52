"""What the demonstration runs: three arms that differ in the speculative configuration alone.

Rule: the engine of an arm and the ``vllm serve`` line that does the same come from one description.
"""

import json
import shlex
import sys
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from vllm_av.demo.drafter import find
from vllm_av.errors import Code, DemoError

ENVIRONMENT = {
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    # Threads that spin while they wait for each other take each other's core: times would scatter.
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
}
"""Beside vLLM's own defaults; the same in every arm and in the printed ``vllm serve`` line."""


SERVED_NAME = "demo"
# Those that draft a block have learnt so many positions of it, and nothing of the next one.
_MOST_DRAFTS = {"dflash": 7, "dspark": 7}


class Arm(StrEnum):
    """The three ways to decode that are compared."""

    NONE = "no speculation"
    FIXED = "fixed K"
    ADAPTIVE = "adaptive verification"


@dataclass(frozen=True)
class Pair:
    """Folders of the checkpoints; no ``drafter`` where it lies inside the target."""

    target: Path
    drafter: Path | None


@dataclass(frozen=True)
class Settings:
    """What the user can choose; checked when made.

    Args:
        drafter: its name, of :data:`vllm_av.demo.drafter.DRAFTERS`.
        concurrency: how many requests are in flight, one measurement each.
        num_speculative_tokens: K, how many tokens are drafted a step; 1 to 8, for a drafter of
            blocks to 7.
        temperature: of every request; drafts are sampled at it too.
        max_tokens: after which a request ends, if its text has not ended before.

    Raises:
        DemoError: ``AV-DEMO-OPTION`` naming the option, what was given and what is allowed.
    """

    drafter: str = "eagle"
    concurrency: tuple[int, ...] = (1, 8)
    num_speculative_tokens: int = 5
    temperature: float = 1.0
    max_tokens: int = 56

    def __post_init__(self) -> None:
        drafter = find(self.drafter)
        for concurrency in self.concurrency:
            _check("--concurrency", concurrency, 1 <= concurrency <= 32, "1 to 32")
        distinct = len(set(self.concurrency)) == len(self.concurrency) > 0
        _check("--concurrency", list(self.concurrency), distinct, "each value once")
        steps, most = self.num_speculative_tokens, _MOST_DRAFTS.get(drafter.method, 8)
        whom = f" with --drafter {self.drafter}" if drafter.method in _MOST_DRAFTS else ""
        _check("--num-speculative-tokens", steps, 1 <= steps <= most, f"1 to {most}{whom}")
        # vLLM raises temperatures below 0.01 to that value: refuse rather than change in silence.
        fair = self.temperature == 0 or 0.01 <= self.temperature <= 2
        _check("--temperature", self.temperature, fair, "0, or 0.01 to 2")
        _check("--max-tokens", self.max_tokens, 8 <= self.max_tokens <= 256, "8 to 256")


def num_prompts(concurrency: int) -> int:
    """How many requests a measurement sends: three rounds, the three workloads in equal parts."""
    return 3 * concurrency


def engine_arguments(arm: Arm, settings: Settings, pair: Pair) -> dict[str, Any]:
    """Keyword arguments of ``vllm.LLM`` for ``arm``."""
    arguments: dict[str, Any] = {
        "model": str(pair.target),
        "dtype": "bfloat16",
        "seed": 0,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "max_model_len": 1024,
        "max_num_seqs": max(settings.concurrency),
        "max_num_batched_tokens": 1024,
        "kv_cache_memory_bytes": 1 << 30,
    }
    if arm is not Arm.NONE:
        arguments["speculative_config"] = speculative_config(arm, settings, pair)
    return arguments


def speculative_config(arm: Arm, settings: Settings, pair: Pair) -> dict[str, Any]:
    """``--speculative-config`` of an arm that speculates."""
    config: dict[str, Any] = {
        "method": find(settings.drafter).method,
        "num_speculative_tokens": settings.num_speculative_tokens,
        "draft_sample_method": "probabilistic",
    }
    if pair.drafter is not None:
        config["model"] = str(pair.drafter)
    if arm is Arm.ADAPTIVE:
        config["enable_adaptive_verification"] = True
    return config


def serve_command(arm: Arm, settings: Settings, pair: Pair) -> list[str]:
    """The command that serves over HTTP what ``arm`` runs."""
    return list(chain.from_iterable(_serve_parts(arm, settings, pair)))


def serve_text(arm: Arm, settings: Settings, pair: Pair) -> str:
    """:func:`serve_command` with its environment, to paste into a shell: one option a line."""
    environment = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
    parts = map(shlex.join, _serve_parts(arm, settings, pair))
    return " \\\n  ".join([environment, *parts])


def ask_text() -> str:
    """A request to that server, to paste into another shell."""
    message = {"role": "user", "content": "Why do we have leap years?"}
    body = {"model": SERVED_NAME, "messages": [message], "max_tokens": 64}
    url = "http://localhost:8000/v1/chat/completions"
    return shlex.join(["curl", url, "-H", "Content-Type: application/json", "-d", json.dumps(body)])


def _serve_parts(arm: Arm, settings: Settings, pair: Pair) -> list[list[str]]:
    """The program with the model, then each option with its value."""
    arguments = engine_arguments(arm, settings, pair)
    vllm = Path(sys.executable).with_name("vllm")
    parts = [[str(vllm), "serve", arguments.pop("model")], ["--served-model-name", SERVED_NAME]]
    for name, value in arguments.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            parts.append([f"--{option}" if value else f"--no-{option}"])
        elif isinstance(value, dict):
            parts.append([f"--{option}", json.dumps(value)])
        else:
            parts.append([f"--{option}", str(value)])
    # By default vLLM gives its engine no time to end, and kills it.
    return [*parts, ["--shutdown-timeout", "60"]]


def _check(option: str, given: object, good: bool, allowed: str) -> None:
    if not good:
        raise DemoError(
            Code.DEMO_OPTION,
            given=f"{option} {given}",
            allowed=f"{option} takes {allowed}",
            fix="choose a value in that range",
        )
