"""What vLLM excludes from adaptive verification by a switch: LoRA, pipeline parallelism, replays.

Rule: each exclusion is vLLM's own, at the line of its source that is named.
"""

from collections.abc import Iterator, Mapping

from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.words import flag, refusal

_SPECIALIZED = "latency_specialized"


def lora(setup: Setup) -> Iterator[Reason]:
    """Adapters are mapped to tokens by the host's boundaries."""
    if setup.features.get("enable_lora"):
        yield refusal(
            ReasonCode.LORA,
            flag("enable-lora"),
            asked="LoRA adapters",
            found="they are mapped to tokens on the host, before the drafts are trimmed",
            where=setup.place("enable_lora", "--enable-lora"),
            source="vllm.py:VllmConfig._validate_adaptive_verification",
        )


def pipeline(setup: Setup) -> Iterator[Reason]:
    """Costs and confidences are on the last rank alone."""
    size = setup.pipeline_parallel_size
    if size > 1:
        yield refusal(
            ReasonCode.PIPELINE,
            flag("pipeline-parallel-size", 1),
            asked=f"pipeline parallelism over {size} stages",
            found="costs and confidences are known to the last stage alone",
            where=setup.place("pipeline_parallel_size", "--pipeline-parallel-size"),
            source="vllm.py:VllmConfig._validate_adaptive_verification",
        )


def routed_experts(setup: Setup) -> Iterator[Reason]:
    """They are returned by the host's boundaries."""
    if setup.features.get("enable_return_routed_experts"):
        inner = "aux_output_config.enable_return_routed_experts"
        config = inner in setup.where or "aux_output_config" in setup.where
        changes = [flag(inner.replace("_", "-", 2))] if config else []
        if "enable_return_routed_experts" in setup.where or not config:
            changes.append(flag("enable-return-routed-experts"))
        yield refusal(
            ReasonCode.ROUTED_EXPERTS,
            *changes,
            asked="routed experts in the answer",
            found="they are cut to requests by the host's query lengths, which trimming changes",
            where=setup.place(
                "enable_return_routed_experts",
                setup.place(inner, "--enable-return-routed-experts"),
            ),
            source="vllm.py:VllmConfig._verify_aux_output_compatibility",
        )


def sampling_mask(setup: Setup) -> Iterator[Reason]:
    """A replay needs fixed boundaries."""
    if setup.features.get("return_sampling_mask"):
        yield refusal(
            ReasonCode.SAMPLING_MASK,
            flag("return-sampling-mask"),
            asked="sampling masks for a replay",
            found="a replay needs verification boundaries that are fixed",
            where=setup.place("return_sampling_mask", "--return-sampling-mask"),
            source="vllm.py:VllmConfig._verify_sampling_replay_config",
        )


def sharded_sampling(setup: Setup) -> Iterator[Reason]:
    """The plan of the shards is the host's, in 0.32."""
    if setup.features.get("enable_batch_sharded_sampling") and setup.vllm.startswith("0.32."):
        yield refusal(
            ReasonCode.SHARDED_SAMPLING,
            flag("enable-batch-sharded-sampling"),
            asked="sampling sharded over the ranks",
            found=f"vLLM {setup.vllm} plans the shards by the host's query lengths",
            where=setup.place("enable_batch_sharded_sampling", "--enable-batch-sharded-sampling"),
            source="vllm.py:VllmConfig._validate_batch_sharded_sampling",
        )


def specialized_decode(setup: Setup) -> Iterator[Reason]:
    """Two models have a decode loop of their own, which serves whole blocks of drafts."""
    config = setup.features.get("additional_config")
    asked = config.get("decode_backend") if isinstance(config, Mapping) else None
    has = setup.target.architecture.startswith(("KimiK3", "DeepseekV41"))
    if asked == _SPECIALIZED and has and not setup.vllm.startswith("0.32."):
        yield refusal(
            ReasonCode.SPECIALIZED_DECODE,
            flag("additional-config.decode_backend"),
            asked=f"the specialised decode of {setup.target.architecture}",
            found="it serves whole blocks of drafts, and refuses adaptive verification when the "
            "model is built",
            where=setup.place(
                "additional_config.decode_backend",
                setup.place("additional_config", "--additional-config"),
            ),
            source="models/kimi_k3/nvidia/specialized_decode"
            if setup.target.architecture.startswith("KimiK3")
            else "models/deepseek_v41/nvidia/specialized_decode",
        )


RULES = (lora, pipeline, routed_experts, sampling_mask, sharded_sampling, specialized_decode)
