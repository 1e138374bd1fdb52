"""Which CUDA graphs vLLM would run, from the flags: its ``VllmConfig.__post_init__``, step by step.

Rule: the steps stand in vLLM's order, each as vLLM 0.32 and 0.33 have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.facts import Gpu
from vllm_av.preflight.flags import Flags

NONE, PIECEWISE, FULL = "NONE", "PIECEWISE", "FULL"
FULL_DECODE_ONLY, FULL_AND_PIECEWISE = "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"
MODES = (NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE)
"""vLLM's ``CUDAGraphMode``, its numbers where they have one."""
WITH_FULL = (FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE)
NO_COMPILATION, STOCK, VLLM_COMPILE = 0, 1, 3
"""Of vLLM's ``CompilationMode``."""
_COMPILATION = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")
_BY_LEVEL = (NONE, PIECEWISE, FULL_AND_PIECEWISE, FULL_AND_PIECEWISE)
_WITHOUT_PIECEWISE = {PIECEWISE: NONE, FULL_AND_PIECEWISE: FULL_DECODE_ONLY}


@dataclass(frozen=True)
class Graphs:
    """What comes of the flags.

    Args:
        mode: the graph mode that vLLM runs, before adaptive verification has a say.
        asked: the one that the user names; None for vLLM's own.
        compilation: vLLM's ``CompilationMode``, as a number.
        place: the flag that decides; None where none does.
        why: what overrides ``asked``, or vLLM's default; empty where nothing does.
    """

    mode: str
    asked: str | None
    compilation: int
    place: str | None
    why: str = ""


def settle(
    flags: Flags,
    environment: Mapping[str, str],
    gpu: Gpu | None,
    experts: int,
    own: tuple[int, str] | None = None,
) -> Graphs:
    """The graph mode that vLLM runs.

    Args:
        experts: of a layer, 0 without.
        own: compilation and graph mode that vLLM takes for this model where none is asked for.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: a mode that vLLM does not have.
    """
    config = flags.get("compilation_config", {})
    asked = _mode(flags, config)
    level = flags.get("optimization_level", 2)
    eager = flags.get("enforce_eager", False)
    breakable = environment.get("VLLM_USE_BREAKABLE_CUDAGRAPH") == "1"
    compilation = _compilation(flags, config)
    if compilation is None:
        by_level = VLLM_COMPILE if level else NO_COMPILATION
        compilation = own[0] if own else by_level
    if eager or breakable or environment.get("TORCH_COMPILE_DISABLE") == "1":
        compilation = NO_COMPILATION
    mode = asked or (own[1] if own else _BY_LEVEL[level])
    place = flags.place("compilation_config", "cudagraph_mode") if asked else None
    if not asked and not own and "optimization_level" in flags.values:
        place = flags.place("optimization_level")
    steps: list[tuple[str, str | None, str]] = []

    def override(new: str, place: str | None, why: str) -> None:
        if new != (steps[-1][0] if steps else mode):
            steps.append((new, place, why))

    def now() -> str:
        return steps[-1][0] if steps else mode

    if eager:
        override(NONE, flags.place("enforce_eager"), "eager execution has no graphs")
    if compilation != VLLM_COMPILE and not breakable:
        override(
            _WITHOUT_PIECEWISE.get(now(), now()),
            flags.place("compilation_config", "mode") or "TORCH_COMPILE_DISABLE",
            "piecewise graphs need vLLM's own compilation",
        )
    if _layerwise(flags.get("kv_transfer_config", {})) and now() in WITH_FULL:
        override(
            PIECEWISE, flags.place("kv_transfer_config"), "the KV connector works layer by layer"
        )
    if gpu is not None and gpu.platform == "cpu":
        override(NONE, None, "the CPU replays no graphs")
    parallel = flags.get("prefill_context_parallel_size", 1) > 1
    if gpu is not None and gpu.platform == "rocm" and parallel and now() in WITH_FULL:
        override(
            PIECEWISE,
            flags.place("prefill_context_parallel_size"),
            "prefill context parallelism on ROCm has no full graphs",
        )
    if gpu is not None and gpu.platform == "xpu" and flags.get("enable_sleep_mode", False):
        override(NONE, flags.place("enable_sleep_mode"), "XPU graphs exclude the sleep mode")
    if compilation == STOCK:
        override(
            NONE,
            flags.place("compilation_config", "mode"),
            "the V2 runner has no graphs beside torch.compile's own mode",
        )
    if compilation == VLLM_COMPILE:
        override(*_split(flags, config, now(), gpu))
    if (
        flags.get("all2all_backend") == "deepep_high_throughput"
        and experts
        and flags.get("data_parallel_size", 1) > 1
    ):
        override(
            NONE, flags.place("all2all_backend"), "DeepEP's high-throughput kernels have no graphs"
        )
    if steps:
        mode, place, why = steps[-1]
        return Graphs(mode, asked, compilation, place, why)
    return Graphs(mode, asked, compilation, place)


def _split(
    flags: Flags, config: Mapping[str, Any], mode: str, gpu: Gpu | None
) -> tuple[str, str | None, str]:
    """``CompilationConfig.set_splitting_ops_for_v1``.

    PIECEWISE stays: adaptive verification is refused before vLLM comes to this step.
    """
    passes = config.get("pass_config")
    fused = isinstance(passes, Mapping) and passes.get("fuse_attn_quant") is True
    fused = fused and (gpu is None or gpu.platform in ("cuda", "rocm"))
    whole = fused and not config.get("use_inductor_graph_partition")
    splits = config.get("splitting_ops")
    if whole and splits is None and mode == FULL_AND_PIECEWISE:
        why = "fuse_attn_quant leaves nothing to split the graphs at"
        return FULL, flags.place("compilation_config", "pass_config"), why
    if not whole and splits == []:
        new = {PIECEWISE: NONE, FULL_AND_PIECEWISE: FULL}.get(mode, mode)
        why = "an empty splitting_ops leaves nothing to split the graphs at"
        return new, flags.place("compilation_config", "splitting_ops"), why
    return mode, None, ""


def _mode(flags: Flags, config: Mapping[str, Any]) -> str | None:
    value = config.get("cudagraph_mode")
    if value is None:
        return None
    if isinstance(value, str) and value.upper() in MODES:
        return value.upper()
    if type(value) is int and 0 <= value <= 2:
        return MODES[value]
    raise _unknown(flags, "cudagraph_mode", value, MODES)


def _compilation(flags: Flags, config: Mapping[str, Any]) -> int | None:
    value = config.get("mode")
    if value is None:
        return None
    if type(value) is int and 0 <= value < len(_COMPILATION):
        return value
    if isinstance(value, str) and value.upper() in _COMPILATION:
        return _COMPILATION.index(value.upper())
    raise _unknown(flags, "mode", value, _COMPILATION)


def _unknown(flags: Flags, key: str, value: object, known: tuple[str, ...]) -> CheckError:
    return CheckError(
        Code.QUESTION_FLAG,
        given=f"{flags.place('compilation_config', key)} is {shown(value)}",
        allowed=f"one of {', '.join(known)}",
        fix="correct the value, or remove it for vLLM's default",
    )


def _layerwise(config: Mapping[str, Any]) -> bool:
    """Whether a KV connector asks for piecewise graphs: LMCache with ``use_layerwise``."""
    extra = config.get("kv_connector_extra_config")
    name = str(config.get("kv_connector", ""))
    return (
        name.startswith("LMCache")
        and isinstance(extra, Mapping)
        and bool(extra.get("use_layerwise"))
    )
