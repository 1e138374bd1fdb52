"""DeepSeek V4 and V4.1 choose their attention class themselves, and refuse what does not suit it.

The selector is never asked. The name that the user gives for all layers picks one of a few classes,
is refused, or is passed over; the class has one form of cache and refuses other types. vLLM finds
out when it builds the model.

Rule: ``_select_dsv4_attn_cls`` and ``_resolve_dsv4_kv_cache_dtype`` of each model, case by case;
what vLLM takes without a word and no kernel is known for is unknown.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from vllm_av.preflight.backends.versions import is_old
from vllm_av.preflight.facts import Gpu, Setup
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.groups import option, place
from vllm_av.preflight.rules.words import flag, refusal, unknown

_GENERIC = ("FLASHINFER_MLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM120")
_FLASHINFER = {
    "V4": ("FLASHINFER_MLA_SPARSE_DSV4",),
    "V4.1": ("FLASHINFER_MLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV41"),
}
_FLASHMLA = ("FLASHMLA_SPARSE", "FLASHMLA_SPARSE_DSV4", "FLASHMLA_SPARSE_DSV41")
_ROCM = ("ROCM_FLASHMLA_SPARSE_DSV4", "ROCM_FLASHMLA_SPARSE_DSV41")
_MEGA = "FLASHMLA_MEGA_ATTN_DSV41"
_HEADS = 8  # fused_layout.py:WV_GROUP_SIZE
_SELECT = "model.py:_select_dsv4_attn_cls"


class Layers(StrEnum):
    """What vLLM builds."""

    FLASHMLA = "FlashMLA"
    MEGA = "mega attention"
    FLASHINFER = "FlashInfer"
    """Rows of plain numbers."""
    FLASHINFER_SM120 = "FlashInfer on SM120"
    OTHER = "the platform's own"


def generation(setup: Setup) -> str | None:
    """``V4`` or ``V4.1``; None for every other model."""
    found = {group.backend or "" for group in setup.target.groups}
    if "DEEPSEEK_V41_SPARSE_SWA" in found:
        return "V4.1"
    return "V4" if "DEEPSEEK_SPARSE_SWA" in found else None


def built(setup: Setup, gpu: Gpu, model: str) -> Layers:
    """The class that vLLM takes, or takes once a name that it refuses is gone."""
    name = setup.attention_backend
    if gpu.platform != "cuda":
        return Layers.OTHER
    if name is not None and _unsuited(setup, gpu, model, name) is not None:
        name = None
    if name in _FLASHINFER[model]:
        return Layers.FLASHINFER_SM120 if gpu.major == 12 else Layers.FLASHINFER
    if name == _MEGA and model == "V4.1":
        return Layers.MEGA
    named = name in (_FLASHMLA if model == "V4.1" else _FLASHMLA[:2])
    if not named and gpu.major == 12:
        return Layers.FLASHINFER_SM120
    mega = model == "V4.1" and not named and gpu.major == 10 and _grouped(setup)
    return Layers.MEGA if mega else Layers.FLASHMLA


def backend(setup: Setup) -> Iterator[Reason]:
    """The name that is given for all layers."""
    model, gpu, name = generation(setup), setup.gpu, setup.attention_backend
    if model is None or gpu is None or name is None:
        return
    why = _unsuited(setup, gpu, model, name)
    if why is None:
        return
    found, source = why
    yield refusal(
        ReasonCode.BACKEND,
        flag(option(setup)),
        asked=f"the layers of DeepSeek {model} on {gpu.name} through {name}",
        found=found,
        where=place(setup),
        fix="and let the model choose",
        source=source,
    )


def cache(setup: Setup) -> Iterator[Reason]:
    """The type of the KV cache."""
    model, gpu, kind = generation(setup), setup.gpu, setup.kv_cache_dtype
    if model is None or gpu is None or kind == "auto":
        return
    layers = built(setup, gpu, model)
    found: tuple[bool, str] | None
    if layers is Layers.FLASHINFER:
        found = _plain(model, kind)
    elif layers is Layers.OTHER and gpu.platform != "rocm":
        found = None if kind == "fp8" else (False, "what its layers make of this is not known")
    else:
        found = _packed(model, kind, gpu, layers)
    if found is None:
        return
    refused, why = found
    yield (refusal if refused else unknown)(
        ReasonCode.BACKEND if refused else ReasonCode.MODEL,
        flag("kv-cache-dtype"),
        asked=f"a KV cache of {kind} in the layers of DeepSeek {model}, {layers} on {gpu.name}",
        found=why,
        where=setup.place("kv_cache_dtype", "--kv-cache-dtype"),
        source="attention.py:_resolve_dsv4_kv_cache_dtype",
    )


def prefill(setup: Setup) -> Iterator[Reason]:
    """V4.1 has prefill context parallelism or drafts, not both."""
    if generation(setup) != "V4.1" or setup.prefill_context_parallel_size == 1:
        return
    yield refusal(
        ReasonCode.PARALLEL,
        flag("prefill-context-parallel-size", 1),
        asked=f"prefill context parallelism over {setup.prefill_context_parallel_size} ranks",
        found="DeepSeek V4.1 has it without speculative decoding only",
        where=setup.place("prefill_context_parallel_size", "--prefill-context-parallel-size"),
        source=_SELECT,
    )


def _unsuited(setup: Setup, gpu: Gpu, model: str, name: str) -> tuple[str, str] | None:
    """Why vLLM, or the kernel, does not take the name, and where that stands."""
    if gpu.platform == "rocm" and model == "V4.1":
        able = _ROCM[:1] if is_old(setup.vllm) else _ROCM
        return None if name in able else (f"vLLM takes {' or '.join(able)} there", _SELECT)
    if gpu.platform != "cuda":
        return None
    if name in _GENERIC:
        return f"{name} is not a DeepSeek {model} attention backend", _SELECT
    if name in _FLASHINFER[model] and gpu.major not in (10, 12):
        return (
            f"{name} requires SM10x or SM12x, which vLLM does not ask when it builds the layers",
            "flashinfer_sparse.py:DeepseekV4FlashInferMLASparseBackend",
        )
    if name == _MEGA and model == "V4.1":
        source = "flash_mla_mega_attn.py:DeepseekV4MegaAttnAttention"
        if gpu.major != 10:
            return f"{name} requires SM10x", source
        if not _grouped(setup):
            return f"{name} needs {_HEADS} heads on a rank for each group of wo_a", source
    return None


def _packed(model: str, kind: str, gpu: Gpu, layers: Layers) -> tuple[bool, str] | None:
    """Whether a packed record of that type is refused, and why; None where it suits."""
    if model == "V4":
        if kind.startswith("fp8"):
            return None
        return True, "they keep packed records of FP8, and refuse other types"
    if kind == "nvfp4_ds_mla":
        if layers is Layers.MEGA:
            return None
        return True, "only mega attention on SM10x reads records of NVFP4"
    if kind in ("fp8", "fp8_ds_mla"):
        return None
    return True, "they keep packed records (fp8), and refuse other types"


def _plain(model: str, kind: str) -> tuple[bool, str] | None:
    """The same of rows of plain numbers."""
    if kind in ("bfloat16", "fp8", "fp8_e4m3"):
        return None
    if model == "V4.1" and kind.endswith("_ds_mla"):
        return True, "they keep plain rows, and refuse a packed record"
    return False, "vLLM takes it without a word, and what the kernel makes of it is not known"


def _grouped(setup: Setup) -> bool:
    """``DeepseekV4MegaAttnAttention.is_available_for``, the device apart."""
    config: Mapping[str, Any] = setup.target.config
    inner = config.get("text_config")
    groups = (inner if isinstance(inner, Mapping) else config).get("o_groups")
    ranks, heads = setup.tensor_parallel_size, setup.target.num_heads
    if type(groups) is not int or groups < ranks or heads % ranks or groups % ranks:
        return False
    return heads // ranks % _HEADS == 0 and heads // groups == _HEADS


RULES = (backend, cache, prefill)
