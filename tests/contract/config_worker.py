"""A process in which vLLM settles command lines as on a GPU that is not there.

Run by the Python of each supported vLLM: a JSON question on standard input, a JSON answer on
standard output (:mod:`tests.contract.configs` asks). Everything that is decided is decided by
vLLM's own code; only what a driver or a compiled extension would say is made up
(:mod:`vllm_av.preflight.backends.pretend`).

Rule: no file is written outside ``VLLM_CACHE_ROOT``, and no weight is needed.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.contract import built_target
from vllm_av.preflight.backends import gpus
from vllm_av.preflight.backends.pretend import pretend


def take_for(gpu: str, memory: int) -> None:
    """Let vLLM take this machine for one with such GPUs; before anything of it is imported.

    Args:
        memory: of each, in GiB: vLLM's defaults hang on it.
    """
    pretend(gpus.named(gpu), memory << 30)
    from vllm.model_executor.models import registry

    # A child process would see the machine as it is.
    registry._run_in_subprocess = lambda function: function()
    registry._LazyRegisteredModel._save_modelinfo_to_cache = lambda *args: None


def settle(argv: list[str], environ: dict[str, str]) -> Any:
    """vLLM's config for ``vllm serve`` with these arguments.

    Raises:
        ValueError: vLLM refuses it.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    if "vllm.vllm_flash_attn" not in sys.modules:
        # Where that package does not import, its parts stay behind and import all the same; a
        # server settles one config, and never sees them.
        sys.modules.pop("vllm.vllm_flash_attn.flash_attn_interface", None)
    with _variables(environ):
        parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
        engine = EngineArgs.from_cli_args(parser.parse_args(argv))
        return engine.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def settled(config: Any) -> dict[str, Any]:
    """Of a config what a check has to know before."""
    speculative = config.speculative_config
    mode = config.compilation_config.cudagraph_mode.name
    largest = config.compilation_config.max_cudagraph_capture_size
    attention = config.attention_config
    return {
        "runner": "v2" if config.use_v2_model_runner else "v1",
        "cudagraph_mode": mode,
        "max_capture_size": 0 if mode == "NONE" else largest,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "method": speculative and speculative.method,
        "num_speculative_tokens": speculative and speculative.num_speculative_tokens,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "vocab_size": config.model_config.get_vocab_size(),
        "attention_backend": attention.backend and attention.backend.name,
        "flash_attn_version": attention.flash_attn_version,
        "kv_cache_dtype": config.cache_config.cache_dtype,
        "adaptive": bool(speculative and speculative.enable_adaptive_verification),
    }


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """One command line: what vLLM makes of it, or why it refuses."""
    told: dict[str, Any] = {"refusal": None, "kind": None, "settled": None, "layers": None}
    config = None
    try:
        config = settle(case["argv"], case["environ"])
        if case["build"]:
            built_target.build(config)
        told["settled"] = settled(config)
    except (Exception, SystemExit) as error:
        told |= {"refusal": str(error), "kind": type(error).__name__}
    if config is not None and case["build"]:
        told["layers"] = built_target.layers(config)
    return told


@contextmanager
def _variables(environ: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    """Answer the question on standard input."""
    question = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM writes its log to standard output
    take_for(question["gpu"], question["memory"])
    if any(case["build"] for case in question["cases"]):
        built_target.prepare()
    json.dump([answer(case) for case in question["cases"]], answers)
    answers.close()


if __name__ == "__main__":
    main()
