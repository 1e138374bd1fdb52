"""What the tests of the check inside the engine have in common."""

import json
from pathlib import Path
from typing import Any

from tests.engine.harness import Engine, engine_arguments, speculation
from vllm_av.errors import RefusedError

FIXED = {"on_unsupported": "fixed_k"}
STEPS = 3
PROMPTS = [[n % 8, 3 * n % 8, 5] for n in range(8)]
LOGGER = "vllm.vllm_av.seams.check"


def arguments(pair: tuple[str, str], spec: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Of a tiny engine; ``spec`` changes its speculative config."""
    whole = speculation(pair[1], "draft_model", True, steps=STEPS) | spec
    return engine_arguments(pair[0], whole, max_model_len=48, skip_tokenizer_init=True) | changes


def config(pair: tuple[str, str], spec: dict[str, Any] | None = None, **changes: Any) -> Any:
    """vLLM's whole config for it; nothing is loaded."""
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(**arguments(pair, spec or {}, **changes)).create_engine_config()


def with_experts(target: str, folder: Path) -> str:
    """A model like ``target`` with routed experts, in ``folder``, without weights."""
    described = json.loads((Path(target) / "config.json").read_text())
    described |= {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    described |= {"num_local_experts": 4, "num_experts_per_tok": 2}
    (folder / "config.json").write_text(json.dumps(described))
    return str(folder)


def codes(error: RefusedError) -> set[str]:
    """Of all its reasons."""
    return {reason.partition("[")[2].partition("]")[0] for reason in error.reasons}


def started(pair: tuple[str, str], spec: dict[str, Any], **changes: Any) -> Engine:
    """That engine, in this process."""
    whole = arguments(pair, spec, **changes)
    return Engine(whole.pop("model"), whole.pop("speculative_config"), **whole)
