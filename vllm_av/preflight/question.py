"""From a command line to a :class:`vllm_av.preflight.facts.Setup`.

Rule: what is wrong with the question itself is told here, and ends it; what adaptive verification
cannot do is left to the rules.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_av import checkpoint, machine
from vllm_av.config.block import BLOCK
from vllm_av.config.text import printable, shown
from vllm_av.config.whole import FLAG, key_meant, switched_on
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.backend_names import backend_per_kind, cache_type, of_drafter, one_backend
from vllm_av.preflight.backends import gpus
from vllm_av.preflight.facts import Gpu, ModelFacts, Setup
from vllm_av.preflight.flags import Container, Flags, Served, parse
from vllm_av.preflight.graphs import NONE, Graphs, settle
from vllm_av.preflight.installed import Installed, in_image, installed
from vllm_av.preflight.model import read_draft, read_target
from vllm_av.preflight.model_hooks import hooked, largest_graph, own_graphs
from vllm_av.preflight.sizes import capture_size, sizes
from vllm_av.preflight.spec_keys import as_vllm_reads
from vllm_av.preflight.variables import that_matter

__all__ = ["Asked", "Question", "ask", "that_matter"]

_FEATURES = (
    "additional_config",
    "all2all_backend",
    "attention_config",
    "compilation_config",
    "disable_sliding_window",
    "enable_batch_sharded_sampling",
    "enable_dbo",
    "enable_expert_parallel",
    "enable_lora",
    "enable_return_routed_experts",
    "enable_sleep_mode",
    "enforce_eager",
    "kv_transfer_config",
    "model_impl",
    "optimization_level",
    "return_sampling_mask",
    "ubatch_size",
    "use_replayssm",
)
_SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "decode_context_parallel_size",
    "prefill_context_parallel_size",
    "data_parallel_size",
)
_RANKS = (
    "tensor_parallel_size",
    "decode_context_parallel_size",
    "prefill_context_parallel_size",
)
_HERE = "the environment"


@dataclass(frozen=True)
class Question:
    """What the user asks.

    Args:
        args: what follows ``vllm serve``.
        gpu: its name; ``auto`` for this machine's.
        vllm: the version; None for the installed one.
        environment: variables, of which those that matter are looked at.
        strict: whether a flag that is given twice is a mistake; of a server that runs the last one
            counts.
        container: in what the server is started, where that is not this environment.
    """

    args: tuple[str, ...]
    gpu: str = gpus.AUTO
    vllm: str | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    strict: bool = True
    container: Container | None = None

    def started_by(self, served: Served) -> "Question":
        """The same with the variables of a command line; a container has no others."""
        kept = self.environment
        if served.container is not None:
            kept = {name: kept[name] for name in served.container.passed if name in kept}
        environment = {**kept, **served.environment}
        return replace(self, environment=environment, container=served.container)


@dataclass(frozen=True)
class Asked:
    """A question that is right."""

    flags: Flags
    vllm: Installed
    graphs: Graphs
    setup: Setup


def ask(question: Question) -> Asked:
    """Read the question.

    Raises:
        CheckError: it is wrong.
    """
    flags = parse(question.args, strict=question.strict)
    container = question.container
    vllm = installed(question.vllm)
    if container is not None:
        flags = replace(flags, not_looked_at=(*container.not_looked_at, *flags.not_looked_at))
        vllm = in_image(container.image) if question.vllm is None else replace(vllm, here=False)
    environment = that_matter(question.environment)
    spec = as_vllm_reads(_speculative(flags), vllm.version)
    of_drafter(spec, vllm.version)
    name = flags.get("hf_config_path") or flags.get("model")
    if name is None:
        raise CheckError(
            Code.QUESTION_MODEL,
            given="no model is named",
            allowed="the folder of a model, or a hub name that lies in the cache",
            fix="write it first, or after --model",
        )
    executor = _executor(flags)
    gpu = None if executor == "ray" and question.gpu == gpus.AUTO else _gpu(question, vllm)
    target = read_target(
        name,
        overrides=flags.get("hf_overrides"),
        dtype=flags.get("dtype"),
        revision=flags.get("revision"),
        disable_sliding_window=flags.get("disable_sliding_window", False),
    )
    target = _on(target, gpu, flags.get("dtype"))
    draft = read_draft(spec, target)
    own = own_graphs(target.architecture)
    graphs = settle(flags, environment, gpu, target.experts, own)
    attention = flags.get("attention_config", {})
    found = sizes(
        gpu,
        max_num_seqs=flags.get("max_num_seqs"),
        max_num_batched_tokens=flags.get("max_num_batched_tokens"),
        max_model_len=flags.get("max_model_len") or _length(target.config),
        chunked=flags.get("enable_chunked_prefill", True),
        ranks=flags.get("tensor_parallel_size", 1) * flags.get("pipeline_parallel_size", 1),
        throughput=flags.get("performance_mode") == "throughput",
    )
    setup = Setup(
        vllm=vllm.version,
        patched=vllm.patched,
        target=target,
        draft=draft,
        gpu=gpu,
        speculative=spec,
        attention_backend=one_backend(flags, attention, vllm.version),
        backend_per_kind=backend_per_kind(flags, attention, vllm.version),
        cudagraph_mode=graphs.mode,
        max_capture_size=0
        if graphs.mode == NONE
        else capture_size(
            gpu,
            found,
            draft.num_speculative_tokens + 1,
            largest=_largest(flags, target),
            listed=_of_compilation(flags, "cudagraph_capture_sizes"),
        ),
        max_num_seqs=found.max_num_seqs,
        max_num_batched_tokens=found.max_num_batched_tokens,
        **{name: flags.get(name, 1) for name in _SIZES},
        kv_cache_dtype=cache_type(flags, vllm.version),
        block_size=flags.get("block_size"),
        executor=executor,
        runner=_runner(environment),
        features=_features(flags, graphs),
        environment=environment,
        where=_where(flags, graphs, gpu, environment) | _image(question),
        vllm_is_known=vllm.sure,
    )
    # Of another machine, or of workers that Ray places, the path says nothing here.
    if question.gpu == gpus.AUTO and container is None and executor != "ray" and vllm.here:
        setup = replace(setup, costs=_costs(setup))
    return Asked(flags, vllm, graphs, hooked(setup))


def _costs(setup: Setup) -> dict[str, Any]:
    """What a cost table must say on this machine, as far as a command line shows it."""
    gpu, drafter = setup.gpu, setup.speculative.get("model")
    rows = setup.environment.get("VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS", "1")
    skip = setup.environment.get("VLLM_MOE_SKIP_PADDING", "1")
    found = {
        "target": checkpoint.name(setup.target.name),
        "method": setup.draft.method,
        "num_speculative_tokens": setup.draft.num_speculative_tokens,
        "max_num_seqs": setup.max_num_seqs,
        "max_num_batched_tokens": setup.max_num_batched_tokens,
        "profile_real_rows": bool(int(rows)),
        "moe_skip_padding": bool(int(skip)),
        "vllm": setup.vllm,
    }
    found |= {name: getattr(setup, name) for name in _RANKS}
    if isinstance(drafter, str):
        found["drafter"] = checkpoint.name(drafter)
    if gpu is not None:
        found["device"] = machine.cpu_name() if gpu.platform == "cpu" else gpu.name
    return found


def _gpu(question: Question, vllm: Installed) -> Gpu | None:
    """That a vLLM here is built for the CPU says nothing of another vLLM."""
    found = gpus.gpu(question.gpu)
    if question.gpu == gpus.AUTO and not vllm.here and found is not None:
        return gpus.visible() if found.platform == "cpu" else found
    return found


def _on(target: ModelFacts, gpu: Gpu | None, dtype: str | None) -> ModelFacts:
    """vLLM takes half precision where the GPU has no bfloat16 and the user leaves it the choice."""
    old = gpu is not None and gpu.platform == "cuda" and gpu.major < 8
    if old and dtype in (None, "auto") and target.dtype == "bfloat16":
        return replace(target, dtype="float16")
    return target


def _length(config: Mapping[str, Any]) -> int | None:
    """``max_position_embeddings``, of a multimodal model its text part's."""
    inner = config.get("text_config")
    found = (inner if isinstance(inner, Mapping) else config).get("max_position_embeddings")
    return found if type(found) is int and found > 0 else None


def _speculative(flags: Flags) -> dict[str, Any]:
    given = _given(flags)
    spec = {str(key).replace("-", "_"): value for key, value in given.items()}
    if len(spec) != len(given):
        keys = [str(key).replace("-", "_") for key in given]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"the speculative config has {shown(twice)} with dashes and with underscores",
            allowed="one of the two spellings",
            fix="remove one",
        )
    for key in list(spec):
        # A misspelt key of ours is told by a rule; the rest is answered as it was meant.
        if (name := key_meant(key)) is not None:
            spec.setdefault(name, spec[key])
    if not switched_on(spec) and spec.get(BLOCK) is None:
        flag = spec.get(FLAG)
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"{FLAG} is {'not set' if flag is None else shown(flag)}",
            allowed="true: of what is switched off there is nothing to check",
            fix=f'add "{FLAG}": true to --speculative-config',
        )
    return spec


def _given(flags: Flags) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = flags.get("speculative_config", {})
    if spec:
        return spec
    raise CheckError(
        Code.QUESTION_SPEC,
        given="there is no --speculative-config, or an empty one",
        allowed="a drafter, and adaptive verification switched on",
        fix='write --speculative-config \'{"method": ..., "model": ..., '
        f'"num_speculative_tokens": ..., "{FLAG}": true}}\'',
    )


def _runner(environment: Mapping[str, str]) -> str | None:
    value = environment.get("VLLM_USE_V2_MODEL_RUNNER")
    return None if value is None else "v2" if int(value) else "v1"


def _executor(flags: Flags) -> str:
    named: str | None = flags.get("distributed_executor_backend")
    many = flags.get("tensor_parallel_size", 1) * flags.get("pipeline_parallel_size", 1) > 1
    return named or ("mp" if many else "uni")


def _of_compilation(flags: Flags, name: str) -> Any:
    """A setting that is a flag, and a key of ``--compilation-config``; vLLM takes one of the two.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: both are given.
    """
    flag = flags.get(name)
    if flag is not None and name in flags.get("compilation_config", {}):
        raise CheckError(
            Code.QUESTION_FLAG,
            given=f"{flags.place(name)} and {name} in --compilation-config are both given",
            allowed="one of the two",
            fix="remove one",
        )
    return flags.get("compilation_config", {}).get(name) if flag is None else flag


def _largest(flags: Flags, target: ModelFacts) -> int | None:
    """Of the captured batches, as the user, or vLLM for this model, has it."""
    found: int | None = _of_compilation(flags, "max_cudagraph_capture_size")
    if found is None and _of_compilation(flags, "cudagraph_capture_sizes") is None:
        return largest_graph(target.architecture)
    return found


def _features(flags: Flags, graphs: Graphs) -> dict[str, Any]:
    """What is on, or set."""
    found = {name: flags.get(name) for name in _FEATURES if flags.get(name)}
    aux = flags.get("aux_output_config", {})
    if aux.get("enable_return_routed_experts") is True:
        found["enable_return_routed_experts"] = True
    if "optimization_level" in flags.values:
        found["optimization_level"] = flags.get("optimization_level")
    for name in ("max_cudagraph_capture_size", "cudagraph_capture_sizes"):
        if (value := _of_compilation(flags, name)) is not None:
            found[name] = value
    if graphs.asked is not None:
        found["asked_cudagraph_mode"] = graphs.asked
    if graphs.why:
        found["cudagraph_mode_because"] = graphs.why
    found["compilation_mode"] = graphs.compilation
    return found


def _image(question: Question) -> dict[str, str]:
    if question.container is None or question.vllm is not None:
        return {}
    return {"vllm": printable(question.container.image or "the container", 120)}


def _where(
    flags: Flags, graphs: Graphs, gpu: Gpu | None, environment: Mapping[str, str]
) -> dict[str, str]:
    where = dict.fromkeys(environment, _HERE) | dict(flags.where)
    default = f"vLLM's default for {gpu.name}" if gpu else "vLLM's default"
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        where.setdefault(name, default)
    where["cudagraph_mode"] = graphs.place or "vLLM's default"
    if "VLLM_USE_V2_MODEL_RUNNER" in environment:
        where["runner"] = f"VLLM_USE_V2_MODEL_RUNNER in {_HERE}"
    return where
