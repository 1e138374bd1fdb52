"""Drafters that the library speculators wrote, whose config holds vLLM's within itself.

Rule: as ``transformers_utils/configs/speculators`` of vLLM takes them apart.
"""

from collections.abc import Mapping
from typing import Any

from vllm_av.config.text import shown
from vllm_av.preflight.model.fields import Fields

_KEY = "speculators_model_type"
_ARCHITECTURES: Mapping[str, Mapping[str, str]] = {
    "dflash": {"": "DFlashDraftModel"},
    "dflash2": {"": "DFlash2DraftModel"},
    "dspark": {"": "Qwen3DSparkModel"},
    "eagle3": {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"},
    "peagle": {"llama": "PeagleLlamaForCausalLM", "qwen3": "PeagleQwen3ForCausalLM"},
}
_KEPT = (
    "draft_vocab_size",
    "block_size",
    "enable_confidence_head",
    "confidence_head_with_markov",
    "num_nextn_predict_layers",
    "target_hidden_size",
)


def is_speculators(config: Mapping[str, Any]) -> bool:
    """Whether a config is of that form."""
    return config.get("speculators_config") is not None or config.get(_KEY) is not None


def verifier(config: Mapping[str, Any]) -> str | None:
    """The target that a drafter was made for, where its config names one."""
    section = config.get("speculators_config")
    inner = section.get("verifier") if isinstance(section, Mapping) else None
    name = inner.get("name_or_path") if isinstance(inner, Mapping) else None
    return name if isinstance(name, str) else None


def unfolded(whole: Fields) -> Fields:
    """The config that vLLM reads out of one of that form.

    Raises:
        CheckError: the form is not whole, or of an algorithm that vLLM does not know.
    """
    algorithm = whole.text(_KEY)
    if algorithm is None or algorithm not in _ARCHITECTURES:
        found = "not there" if algorithm is None else shown(algorithm)
        raise whole.wrong(_KEY, found, "one of " + ", ".join(sorted(_ARCHITECTURES)))
    layer = whole.section("transformer_layer_config")
    values = {} if layer is None else dict(layer.values)
    names = _ARCHITECTURES[algorithm]
    kind = "" if "" in names else str(values.get("model_type", "llama"))
    if kind not in names:
        raise whole.wrong(
            "transformer_layer_config.model_type", shown(kind), "one of " + ", ".join(sorted(names))
        )
    values |= {name: whole.values[name] for name in _KEPT if name in whole}
    architectures = [names[kind]]
    if algorithm == "dspark" and "Qwen3OmniDSparkModel" in whole.texts("architectures"):
        architectures = ["Qwen3OmniDSparkModel"]
    # vLLM's class for them has a type of its own, whatever the layers' is.
    values |= {"architectures": architectures, "model_type": "speculators"}
    return Fields(values, whole.source, whole.code)


def method(config: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The method that vLLM takes from it, and whether it drafts in parallel."""
    return {
        "dflash": ("dflash", False),
        "dflash2": ("dflash", False),
        "dspark": ("dspark", False),
        "eagle3": ("eagle3", False),
        "peagle": ("eagle3", True),
    }.get(str(config.get(_KEY)))
