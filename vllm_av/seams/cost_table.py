"""Knows whose costs a table must have to be this engine's, from vLLM's config.

A table is looked at three times, each time as soon as more is known: when the front end has made
its config, when the target's layers are built and no weight is loaded, and when the graphs have
been captured. Only the last look takes the costs.

Rules:

* Only the first of all ranks looks at the file: others may have another file system, and are given
  what it found.
* A field of the first look is one that no later step of vLLM's start changes.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_av.seams import note

if TYPE_CHECKING:
    from vllm_av.budget.around import Policy
    from vllm_av.preflight.facts import Gpu

_models: dict[int, tuple[Any, dict[str, Any]]] = {}
"""By the id of a speculative config, which is kept beside: what the models were when it was looked
at first, since loading a model may edit its config. No two can have one id: none is let go."""
_built: dict[str, Any] = {"attention_backends": [], "kv_cache_dtype": None}
"""What the layers of the target that was built last in this process have."""


def stored(inner: "Policy", vllm_config: Any, path: str) -> "Policy":
    """``inner`` with its costs in the file at ``path``.

    Raises:
        CostTableError: ``path`` leads nowhere.
    """
    from vllm.logger import init_logger

    from vllm_av.budget.costs.stored import StoredCosts, place

    log = init_logger(f"vllm.{__name__}")

    def identity(capture_sizes: list[int]) -> Mapping[str, Any]:
        return at_profiling(vllm_config, capture_sizes)

    return StoredCosts(
        inner,
        place(path),
        identity,
        failed=note.leave,
        say=lambda line: log.info("Adaptive verification: %s", line),
        warn=lambda line: log.warning("Adaptive verification: %s", line),
    )


def at_start(vllm_config: Any, gpu: "Gpu | None") -> dict[str, Any] | None:
    """What is known when the config is made; None where no table is to be looked at here.

    Args:
        vllm_config: vLLM's ``VllmConfig``.
        gpu: of this process; None where the workers are elsewhere.
    """
    if gpu is None or not _is_named(vllm_config) or not is_first_rank(vllm_config):
        return None
    return _known(vllm_config, gpu)


def _known(vllm_config: Any, gpu: "Gpu | None") -> dict[str, Any]:
    from vllm import envs

    spec, parallel = vllm_config.speculative_config, vllm_config.parallel_config
    scheduler = vllm_config.scheduler_config
    return {
        **look_at_models(spec),
        "num_speculative_tokens": spec.num_speculative_tokens,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "draft_tensor_parallel_size": spec.draft_tensor_parallel_size or 1,
        "prefill_context_parallel_size": parallel.prefill_context_parallel_size,
        "decode_context_parallel_size": parallel.decode_context_parallel_size,
        "expert_parallel": bool(parallel.enable_expert_parallel),
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "profile_context_len": envs.VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN,
        "profile_real_rows": bool(envs.VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS),
        "moe_skip_padding": bool(envs.VLLM_MOE_SKIP_PADDING),
        **_of_machine(gpu),
        **_versions(),
    }


def at_layers(
    vllm_config: Any, gpu: "Gpu | None", layers: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What is known when the target's layers are built; None where no table is looked at here.

    Args:
        vllm_config: vLLM's ``VllmConfig``.
        gpu: of this process.
        layers: the target's attention layers.
    """
    if not _is_named(vllm_config):
        return None
    _built["attention_backends"] = backends_of(layers.values())
    # Layers may choose another than was asked for, and the draft's, built later, yet another.
    _built["kv_cache_dtype"] = str(vllm_config.cache_config.cache_dtype)
    here = at_start(vllm_config, gpu)
    return None if here is None else here | _of_worker(vllm_config)


def at_profiling(vllm_config: Any, capture_sizes: list[int]) -> dict[str, Any]:
    """Everything, once the graphs are captured; in the order of the fields."""
    from vllm_av.budget.costs.identity import FIELDS
    from vllm_av.seams.check import device

    compilation = vllm_config.compilation_config
    found = (
        _known(vllm_config, device(vllm_config))
        | _of_worker(vllm_config)
        | {
            "max_model_len": vllm_config.model_config.max_model_len,
            "graph_mode": compilation.cudagraph_mode.name,
            "capture_sizes": list(capture_sizes),
            "compilation_mode": int(compilation.mode or 0),
        }
    )
    return {name: found[name] for name in FIELDS}


def backends_of(layers: Iterable[Any]) -> list[str]:
    """The attention backends of layers, by name."""
    return sorted({layer.get_attn_backend().get_name() for layer in layers})


def is_first_rank(vllm_config: Any) -> bool:
    """Whether this process asks for all ranks, or starts the one that does."""
    from vllm_av.seams import ranks
    from vllm_av.seams.check import is_worker

    parallel = vllm_config.parallel_config
    if parallel.data_parallel_rank != 0:
        return False
    # On another node the path may lead elsewhere, and nobody there will read it.
    return ranks.is_first() if is_worker() else bool(parallel.node_rank_within_dp == 0)


def _is_named(vllm_config: Any) -> bool:
    block = vllm_config.speculative_config.adaptive_verification_config or {}
    return block.get("budget", {}).get("cost_table_path") is not None


def look_at_models(spec: Any) -> dict[str, Any]:
    """What the models are, as they were at the first look.

    Args:
        spec: vLLM's ``SpeculativeConfig``.
    """
    known = _models.get(id(spec))
    if known is None:
        from vllm_av import checkpoint

        found: dict[str, Any] = {"method": spec.method}
        for role, config in (
            ("target", spec.target_model_config),
            ("drafter", spec.draft_model_config),
        ):
            found[role] = checkpoint.name(config.model)
            found[f"{role}_config"] = checkpoint.short(checkpoint.config_digest(config))
            found[f"{role}_dtype"] = str(config.dtype).removeprefix("torch.")
            found[f"{role}_quantization"] = config.quantization
        known = _models[id(spec)] = (spec, found)
    return known[1]


def _of_machine(gpu: "Gpu | None") -> dict[str, Any]:
    from vllm_av import machine

    platform = None if gpu is None else gpu.platform
    name = None if gpu is None else gpu.name
    return {
        "device": machine.cpu_name() if platform == "cpu" else name,
        "driver": machine.nvidia_driver() if platform == "cuda" else None,
    }


def _of_worker(vllm_config: Any) -> dict[str, Any]:
    """What only a worker knows."""
    import torch
    from vllm.platforms import current_platform

    return {
        "threads": torch.get_num_threads() if current_platform.is_cpu() else None,
        "data_parallel_size": vllm_config.parallel_config.data_parallel_size,
        **_built,
    }


@cache
def _versions() -> dict[str, Any]:
    import torch
    import vllm

    from vllm_av.errors import VllmAvError
    from vllm_av.patching.state import load_manifest
    from vllm_av.patching.tree import find_tree

    try:
        manifest = load_manifest(find_tree(Path(vllm.__file__).parents[1]))
    except VllmAvError:  # patched by other means
        manifest = None
    return {
        "vllm": vllm.__version__.partition("+")[0],
        "torch": str(torch.__version__),
        "series": manifest.digest[:12] if manifest else None,
    }
