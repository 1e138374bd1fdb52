"""What vLLM rewrites of its own config for single architectures, before anything is decided by it.

``MODELS_CONFIG_MAP`` in vLLM's ``model_executor/models/config.py`` names a class for each of them;
here are those whose changes the check's answer hangs on. In an engine vLLM has made them already.

Rule: what the user sets is left alone exactly where vLLM leaves it alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vllm_av.preflight.backends.versions import is_old
from vllm_av.preflight.facts import Gpu, Setup

Hook = Callable[[Setup], Setup]

_FA4_HEADS = 512
_FA4_MAJORS = (9, 10, 11)
"""Where vLLM's wheel has FlashAttention 4 (``fa_utils.py``, ``is_fa_version_supported``)."""


def hooked(setup: Setup) -> Setup:
    """The setup as vLLM goes on with it."""
    hook = HOOKS.get(setup.target.architecture)
    return setup if hook is None else hook(setup)


def largest_graph(architecture: str) -> int | None:
    """``max_cudagraph_capture_size`` where the user sets neither it nor a list."""
    return _GRAPHS.get(architecture)


def own_graphs(architecture: str) -> tuple[int, str] | None:
    """vLLM's ``CompilationMode`` as a number and its graph mode, each where the user sets none."""
    return _MODES.get(architecture)


def _gemma4(setup: Setup) -> Setup:
    """``Gemma4Config``: one version of FlashAttention for heads of two sizes, else Triton."""
    gpu = setup.gpu
    sizes = {group.head_size for group in setup.target.groups}
    if gpu is None or len(sizes) < 2:
        return setup
    if _on(gpu, *_FA4_MAJORS) and max(sizes) <= _FA4_HEADS:
        attention = _attention(setup)
        ours = attention.get("flash_attn_version") is None
        each = gpu.major == 9 and setup.kv_cache_dtype.startswith("fp8")
        if not ours or each or setup.attention_backend not in (None, "FLASH_ATTN"):
            return setup
        new = {**attention, "flash_attn_version": 4}
        return replace(setup, features={**setup.features, "attention_config": new})
    if gpu.platform == "xpu" and not is_old(setup.vllm):
        return setup
    if setup.attention_backend is not None:
        return setup
    where = {**setup.where, "attention_backend": f"vLLM's own choice for {_NAMES['gemma4']}"}
    return replace(setup, attention_backend="TRITON_ATTN", where=where)


def _glm_dsa(setup: Setup) -> Setup:
    """``GlmMoeDsaForCausalLM``: an FP8 cache on Blackwell, for the target and its own modules."""
    if setup.kv_cache_dtype != "auto" or setup.gpu is None or not _on(setup.gpu, 10):
        return setup
    return _cached(setup, "fp8_e4m3")


def _glm5_next(setup: Setup) -> Setup:
    """``Glm5NextModelConfig``: the same where there is an indexer, by another name."""
    text = setup.target.config.get("text_config")
    text = text if isinstance(text, Mapping) else setup.target.config
    auto = setup.kv_cache_dtype == "auto" and setup.gpu is not None and _on(setup.gpu, 10)
    if not auto or is_old(setup.vllm) or text.get("index_topk") is None:
        return setup
    return _cached(setup, "fp8")


def _deepseek_v32(setup: Setup) -> Setup:
    """``DeepseekV32ForCausalLM``: bfloat16 is what ``auto`` stands for."""
    if setup.kv_cache_dtype != "bfloat16":
        return setup
    return replace(setup, kv_cache_dtype="auto")


def _cached(setup: Setup, dtype: str) -> Setup:
    """A cache of that type, which a drafter of its own does not share."""
    spec = dict(setup.speculative)
    if setup.draft.method != "mtp" and spec.get("kv_cache_dtype") is None:
        spec["kv_cache_dtype"] = "auto"
    where = {**setup.where, "kv_cache_dtype": f"vLLM's own choice for {_NAMES['glm']}"}
    return replace(setup, kv_cache_dtype=dtype, speculative=spec, where=where)


def _on(gpu: Gpu, *majors: int) -> bool:
    return gpu.platform == "cuda" and gpu.major in majors


def _attention(setup: Setup) -> Mapping[str, Any]:
    found = setup.features.get("attention_config")
    return found if isinstance(found, Mapping) else {}


_NAMES = {"gemma4": "Gemma 4", "glm": "GLM with sparse attention"}
HOOKS: Mapping[str, Hook] = {
    "DeepseekV32ForCausalLM": _deepseek_v32,
    "Gemma4ForCausalLM": _gemma4,
    "Gemma4ForConditionalGeneration": _gemma4,
    "Gemma4UnifiedForConditionalGeneration": _gemma4,
    "Glm5NextForCausalLM": _glm5_next,
    "Glm5NextForConditionalGeneration": _glm5_next,
    "GlmMoeDsaForCausalLM": _glm_dsa,
}
"""Architecture -> what vLLM changes for it."""
_GRAPHS: Mapping[str, int] = {"GptOssForCausalLM": 1024}
"""``GptOssForCausalLMConfig``."""
_MODES: Mapping[str, tuple[int, str]] = {"LongcatFlashNgramForCausalLM": (0, "FULL")}
"""``LongcatFlashNgramForCausalLMConfig``: its inputs reach full graphs alone."""
GRAPHS = frozenset({*_GRAPHS, *_MODES})
"""Architectures whose graphs differ."""
