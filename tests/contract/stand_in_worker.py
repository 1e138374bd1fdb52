"""A process in which vLLM's classes are asked twice about each model: with the config that vLLM
itself makes of a command line, and with the stand-in for it.

Run by the Python of a supported vLLM: ``{"gpu": ..., "models": {name: folder}, "flags": [[...]]}``
on standard input, ``[[name, flags, answers with the stand-in, answers with the config], ...]`` on
standard output.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.contract.config_worker import settle, take_for
from tests.unit.preflight.backends.setups import setup
from vllm_av.preflight.backends.classes import ClassCapabilities
from vllm_av.preflight.backends.wire import plain
from vllm_av.preflight.facts import ModelFacts, Setup
from vllm_av.preflight.model import read_target

K = 3


def compare(gpu: str, folder: str, flags: list[str]) -> list[Any]:
    """The answers about all layers of a model, of both."""
    serve = ["--model", folder, "--skip-tokenizer-init", "--max-model-len", "2048", *flags]
    config = settle(serve, {})
    # the drafter is no part of this: what the classes read of it is told
    config.speculative_config = SimpleNamespace(
        method="eagle3",
        num_speculative_tokens=K,
        enable_adaptive_verification=True,
        parallel_drafting=False,
    )
    target = read_target(folder)
    asked = asked_of(config, gpu, target)
    return [
        [plain(capabilities.answer(asked, group)) for group in target.groups]
        for capabilities in (ClassCapabilities(), ClassCapabilities(config))
    ]


def asked_of(config: Any, gpu: str, target: ModelFacts) -> Setup:
    """The question that a config stands for."""
    import vllm

    cache = config.cache_config
    dtype = str(config.model_config.dtype).removeprefix("torch.")
    return setup(
        gpu,
        K,
        vllm=vllm.__version__.partition("+")[0],
        target=replace(target, dtype=dtype),
        tensor_parallel_size=config.parallel_config.tensor_parallel_size,
        kv_cache_dtype=cache.cache_dtype,
        block_size=cache.block_size if cache.user_specified_block_size else None,
    )


def main() -> None:
    """Answer the question on standard input."""
    question = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM writes its log to standard output
    take_for(question["gpu"], 80)
    told = [
        [name, flags, *compare(question["gpu"], str(Path(folder)), flags)]
        for name, folder in question["models"].items()
        for flags in question["flags"]
    ]
    json.dump(told, answers)
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
