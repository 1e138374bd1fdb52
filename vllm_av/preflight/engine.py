"""The question that a vLLM engine asks: its own config, when it is made and again in each worker.

Rule: what vLLM itself has found is never lost; where a rule tells the same with more, the rule's
words are taken.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from vllm_av.config.block import BLOCK
from vllm_av.config.whole import FLAG
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.backends.flashinfer import installed
from vllm_av.preflight.capabilities import Capabilities
from vllm_av.preflight.facts import DraftFacts, Gpu, ModelFacts, Setup
from vllm_av.preflight.model import draft_from_config, target_from_config
from vllm_av.preflight.model.tensors import tensor_names
from vllm_av.preflight.question import that_matter
from vllm_av.preflight.reasons import Reason, ReasonCode, Weight
from vllm_av.preflight.rules import judge

SOURCE = "vLLM's config"
_CODES = {
    "runner": ReasonCode.RUNNER,
    "method": ReasonCode.DRAFTER,
    "local_argmax": ReasonCode.LOCAL_ARGMAX,
    "lora": ReasonCode.LORA,
    "cudagraphs": ReasonCode.GRAPHS,
    "pipeline_parallel": ReasonCode.PIPELINE,
    "routed_experts": ReasonCode.ROUTED_EXPERTS,
    "sampling_mask": ReasonCode.SAMPLING_MASK,
    "batch_sharded_sampling": ReasonCode.SHARDED_SAMPLING,
    "query_lens": ReasonCode.LENS,
    "varlen_cudagraphs": ReasonCode.VARLEN,
}
"""vLLM's word for a blocker -> ours."""
_KEYS = (
    FLAG,
    BLOCK,
    "draft_sample_method",
    "parallel_drafting",
    "use_heterogeneous_vocab",
    "use_local_argmax_reduction",
)
_ATTENTION = ("flash_attn_version", "use_trtllm_attention", "use_non_causal")
_PARALLEL = ("all2all_backend", "enable_batch_sharded_sampling", "enable_dbo", "ubatch_size")


class Blocker(Protocol):
    """vLLM's, of its module ``config.adaptive_verification_check``."""

    @property
    def kind(self) -> str:
        """Which of its reasons."""
        ...

    @property
    def message(self) -> str:
        """In its words."""
        ...


def reasons_of(
    vllm_config: Any,
    blockers: Iterable[Blocker],
    gpu: Gpu | None,
    answers: Capabilities | None,
    costs: Mapping[str, Any] | None = None,
) -> list[Reason]:
    """All that is to be told about this config before its model is built.

    Args:
        vllm_config: vLLM's ``VllmConfig``.
        blockers: what vLLM has found.
        gpu: None where this process cannot see it.
        answers: what the attention backends can do; None where nobody can be asked.
        costs: what a cost table must say; None where no table is to be looked at here.
    """
    setup = setup_of(vllm_config, gpu, costs)
    nvidia = gpu is not None and gpu.platform == "cuda"
    found = judge(setup, answers, installed() if nvidia else None).reasons
    refused = {reason.code for reason in found if reason.weight is Weight.REFUSAL}
    more = [reason for reason in map(reason_of, blockers) if reason.code not in refused]
    return [*more, *found]


def reason_of(blocker: Blocker) -> Reason:
    """The same in our form."""
    # Another kind is of a vLLM that this package does not know.
    code = _CODES.get(blocker.kind, ReasonCode.VERSION)
    built = code in (ReasonCode.LENS, ReasonCode.VARLEN)
    return Reason(
        code,
        Weight.REFUSAL,
        asked="the target's attention layers, as they are built" if built else "this config",
        found=blocker.message,
        where="the selected attention backend" if built else SOURCE,
        fix="name another one by --attention-backend, where the model leaves the choice"
        if built
        else None,
        source="asked",
    )


def setup_of(vllm_config: Any, gpu: Gpu | None, costs: Mapping[str, Any] | None = None) -> Setup:
    """The config of an engine as a question.

    Args:
        vllm_config: vLLM's ``VllmConfig``, with a speculative config and a model.
        gpu, costs: as above.
    """
    from vllm import __version__

    config = vllm_config
    attention, parallel = config.attention_config, config.parallel_config
    graphs, scheduler, cache = (
        config.compilation_config,
        config.scheduler_config,
        config.cache_config,
    )
    target = _target(config.model_config)
    mode = graphs.cudagraph_mode.name
    return Setup(
        vllm=__version__.partition("+")[0],
        patched=True,
        target=target,
        draft=_draft(config.speculative_config, target),
        gpu=gpu,
        speculative=_speculative(config.speculative_config),
        attention_backend=attention.backend.name if attention.backend else None,
        backend_per_kind={kind: each.name for kind, each in attention.backend_per_kind.items()},
        cudagraph_mode=mode,
        max_capture_size=0 if mode == "NONE" else graphs.max_cudagraph_capture_size or 0,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        tensor_parallel_size=parallel.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        decode_context_parallel_size=parallel.decode_context_parallel_size,
        prefill_context_parallel_size=parallel.prefill_context_parallel_size,
        data_parallel_size=parallel.data_parallel_size,
        kv_cache_dtype=cache.cache_dtype,
        block_size=cache.block_size if cache.user_specified_block_size else None,
        executor=executor(vllm_config),
        runner="v2" if config.use_v2_model_runner else "v1",
        features=_features(config),
        environment=that_matter(os.environ),
        costs=costs,
    )


def executor(vllm_config: Any) -> str:
    """``mp``, ``ray``, ``uni`` or ``external_launcher``; of a class its name."""
    backend = vllm_config.parallel_config.distributed_executor_backend
    return backend if isinstance(backend, str) else getattr(backend, "__name__", "uni")


def _target(model: Any) -> ModelFacts:
    config = model.hf_config.to_dict()
    dtype = str(model.dtype).removeprefix("torch.")
    try:
        return target_from_config(config, name=model.model, source=SOURCE, dtype=dtype)
    except CheckError:
        # Its layers stay unknown: vLLM has taken this config, so it is no mistake here.
        return ModelFacts(
            name=model.model,
            architecture=model.architecture,
            groups=(),
            vocab_size=model.get_vocab_size(),
            dtype=dtype,
            experts=int(model.is_moe),
            config=config,
            source=SOURCE,
        )


def _draft(spec: Any, target: ModelFacts) -> DraftFacts:
    return draft_from_config(
        spec.draft_model_config.hf_config.to_dict(),
        method=spec.method,
        num_speculative_tokens=spec.num_speculative_tokens,
        target=target,
        tensors=_tensors(spec.draft_model_config.model),
        parallel=spec.parallel_drafting,
        source=SOURCE,
    )


def _tensors(name: str) -> frozenset[str] | None:
    """What lies in the drafter's folder; of a hub name nothing, since it may not be there yet."""
    folder = Path(name)
    try:
        return tensor_names(folder, Code.QUESTION_DRAFT) if folder.is_dir() else None
    except (CheckError, OSError):
        return None


def _speculative(spec: Any) -> dict[str, Any]:
    found = {name: value for name in _KEYS if (value := getattr(spec, name, None)) is not None}
    if (backend := getattr(spec, "attention_backend", None)) is not None:
        found["attention_backend"] = backend.name
    return found


def _features(config: Any) -> Mapping[str, Any]:
    """What is on, or set, by the flag's name."""
    attention, transfer = config.attention_config, config.kv_transfer_config
    found = {name: getattr(config.parallel_config, name, None) for name in _PARALLEL}
    found |= {
        "additional_config": config.additional_config,
        "attention_config": {name: getattr(attention, name, None) for name in _ATTENTION},
        "compilation_mode": int(config.compilation_config.mode or 0),
        "enable_expert_parallel": config.parallel_config.enable_expert_parallel,
        "enable_lora": config.lora_config is not None,
        "enable_return_routed_experts": config.aux_output_config.enabled,
        "enable_sleep_mode": config.model_config.enable_sleep_mode,
        "enforce_eager": config.model_config.enforce_eager,
        "kv_transfer_config": {"kv_connector": transfer.kv_connector} if transfer else None,
        "model_impl": config.model_config.model_impl,
        "return_sampling_mask": config.model_config.return_sampling_mask,
        "use_replayssm": getattr(config.cache_config, "use_replayssm", None),
    }
    on = {name: value for name, value in found.items() if value}
    return on | {"optimization_level": int(config.optimization_level)}
