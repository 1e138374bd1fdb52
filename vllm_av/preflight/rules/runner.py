"""Does vLLM take its V2 model runner, which alone has adaptive verification?

Rule: ``VllmConfig.use_v2_model_runner``; what concerns the drafter is told about the drafter.
"""

from collections.abc import Iterator

from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.words import (
    flag,
    key,
    refusal,
    spec_place,
    switched,
    variable,
)

_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_SOURCE = "vllm.py:VllmConfig._get_v2_model_runner_unsupported_features"


def forced(setup: Setup) -> Iterator[Reason]:
    """The user forces V1, or, in a running engine, something did."""
    if setup.runner != "v1":
        return
    user = _VARIABLE in setup.environment
    yield refusal(
        ReasonCode.RUNNER,
        *((variable(_VARIABLE),) if user else ()),
        asked="vLLM's V1 model runner",
        found="only the V2 model runner has adaptive verification",
        where=setup.place("runner", f"{_VARIABLE}=0") if user else "vLLM's own choice",
        fix=None if user else "vLLM's log says what the V2 model runner does not support",
        source="vllm.py:VllmConfig._get_v1_model_runner_unsupported_features",
    )


def launcher(setup: Setup) -> Iterator[Reason]:
    """Pipeline parallelism under torchrun."""
    if setup.executor == "external_launcher" and setup.pipeline_parallel_size > 1:
        yield refusal(
            ReasonCode.RUNNER,
            flag("pipeline-parallel-size", 1),
            asked="pipeline parallelism under an external launcher",
            found="only the V1 model runner has it, and only V2 has adaptive verification",
            where=setup.place("distributed_executor_backend", "--distributed-executor-backend"),
            source=_SOURCE,
        )


def batch_overlap(setup: Setup) -> Iterator[Reason]:
    """DBO and speculative decoding exclude each other in V2."""
    cpu = setup.gpu is not None and setup.gpu.platform == "cpu"  # it switches the first one off
    dbo = setup.features.get("enable_dbo") and not cpu
    if dbo or setup.features.get("ubatch_size", 0) > 1:
        name = "enable_dbo" if dbo else "ubatch_size"
        changes = [flag("enable-dbo")] if dbo else []
        if setup.features.get("ubatch_size", 0) > 1:
            changes.append(flag("ubatch-size"))
        yield refusal(
            ReasonCode.RUNNER,
            *changes,
            asked="batches split in two (dual batch overlap)",
            found="the V2 model runner does not split batches that hold drafts",
            where=setup.place(name, f"--{name.replace('_', '-')}"),
            source="vllm.py:VllmConfig._get_dbo_unsupported_features",
        )


def vocabularies(setup: Setup) -> Iterator[Reason]:
    """A draft model of another vocabulary."""
    if switched(setup, "use_heterogeneous_vocab"):
        yield refusal(
            ReasonCode.RUNNER,
            key("use_heterogeneous_vocab", False),
            asked="a draft model of another vocabulary than the target's",
            found="only the V1 model runner maps the tokens, and only V2 has adaptive verification",
            where=spec_place(setup, "use_heterogeneous_vocab"),
            source=_SOURCE,
        )


RULES = (forced, launcher, batch_overlap, vocabularies)
