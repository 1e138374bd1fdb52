"""Which CUDA graphs vLLM runs, and what adaptive verification makes of them.

Rule: full graphs are asked of every platform but the CPU, which has none to replay.
"""

from collections.abc import Iterator

from vllm_av.preflight.facts import Setup
from vllm_av.preflight.graphs import WITH_FULL
from vllm_av.preflight.reasons import Change, Reason, ReasonCode
from vllm_av.preflight.rules.words import caution, flag, refusal

_VLLM_COMPILE = 3
_STOCK = (1, "STOCK_TORCH_COMPILE")
_MODE = "compilation-config.cudagraph_mode"


def full_graphs(setup: Setup) -> Iterator[Reason]:
    """Without them no batch of trimmed drafts is replayed."""
    mode = setup.cudagraph_mode
    if mode in WITH_FULL or not setup.replays:
        return
    because = setup.features.get("cudagraph_mode_because")
    asked = "no CUDA graphs" if mode == "NONE" else f"the graph mode {mode}"
    unpatched = setup.gpu is not None and setup.gpu.platform == "cpu"
    yield refusal(
        ReasonCode.GRAPHS,
        *(() if unpatched else _remedy(setup)),
        asked=asked + (f" ({because})" if because else ""),
        found="vLLM verifies trimmed drafts in full CUDA graphs: "
        "FULL, FULL_DECODE_ONLY or FULL_AND_PIECEWISE",
        where=setup.place("cudagraph_mode", "vLLM's config"),
        fix="run `vllm-av patch apply`: the group cpu verifies without graphs"
        if unpatched
        else None,
        source="vllm.py:VllmConfig._validate_adaptive_verification",
    )


def _remedy(setup: Setup) -> Iterator[Change]:
    """Every setting that stands in the way."""
    features = setup.features
    if features.get("enforce_eager"):
        yield flag("enforce-eager")
    if (features.get("compilation_config") or {}).get("mode") in _STOCK:
        yield flag("compilation-config.mode")
    if features.get("all2all_backend") == "deepep_high_throughput":
        yield flag("all2all-backend", "deepep_low_latency")
    kv = features.get("kv_transfer_config") or {}
    if (kv.get("kv_connector_extra_config") or {}).get("use_layerwise"):
        yield flag("kv-transfer-config.kv_connector_extra_config.use_layerwise", False)
    rocm = setup.gpu is not None and setup.gpu.platform == "rocm"
    if rocm and setup.prefill_context_parallel_size > 1:
        yield flag("prefill-context-parallel-size", 1)
    if setup.gpu is not None and setup.gpu.platform == "xpu" and features.get("enable_sleep_mode"):
        yield flag("enable-sleep-mode")
    asked = features.get("asked_cudagraph_mode")
    if asked is not None and asked not in WITH_FULL:
        yield flag(_MODE, "FULL_AND_PIECEWISE")
    elif asked is None and features.get("optimization_level", 2) < 2:
        yield flag(_MODE, "FULL_DECODE_ONLY")


def rewritten(setup: Setup) -> Iterator[Reason]:
    """What is asked for is not what runs."""
    mode = setup.cudagraph_mode
    asked = setup.features.get("asked_cudagraph_mode", mode)
    if mode not in WITH_FULL or not setup.replays:
        return
    compiled = setup.features.get("compilation_mode", _VLLM_COMPILE) == _VLLM_COMPILE
    breakable = setup.environment.get("VLLM_USE_BREAKABLE_CUDAGRAPH") == "1"
    runs = mode
    if mode == "FULL":
        # resolve_adaptive_cudagraph_mode: decode gets a route of its own.
        runs = "FULL_AND_PIECEWISE" if compiled or breakable else "FULL_DECODE_ONLY"
    if runs == asked:
        return
    because = setup.features.get("cudagraph_mode_because")
    yield caution(
        ReasonCode.GRAPH_MODE,
        flag(_MODE, runs),
        asked=f"the graph mode {asked}",
        found=f"vLLM runs {runs}"
        + (f": {because}" if because else ": trimmed batches get graphs of their own"),
        where=setup.place("compilation_config.cudagraph_mode", setup.place("cudagraph_mode", "")),
        source="adaptive_verification.py:resolve_adaptive_cudagraph_mode",
    )


RULES = (full_graphs, rewritten)
