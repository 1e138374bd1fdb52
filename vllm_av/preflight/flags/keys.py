"""The keys of JSON flags that the check reads, and what vLLM takes for their values.

Rule: a value that vLLM would refuse is a mistake here, so that no rule meets one; null is absence.
"""

from collections.abc import Callable, Mapping
from typing import Any

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code

Test = tuple[Callable[[Any], bool], str]


def _whole(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**31


_OBJECT: Test = (lambda value: isinstance(value, Mapping), "an object")
_TEXT: Test = (lambda value: isinstance(value, str), "a name")
_SWITCH: Test = (lambda value: isinstance(value, bool), "true or false")
_COUNT: Test = (_whole, "a whole number from 1 on")
_COUNTS: Test = (
    lambda value: isinstance(value, list) and bool(value) and all(map(_whole, value)),
    "a list of whole numbers from 1 on",
)
_NAMES: Test = (
    lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "a list of names",
)
_VERSION: Test = (lambda value: type(value) is int and value in (2, 3, 4), "2, 3 or 4")

_KEYS: Mapping[str, Test] = {
    "additional_config.decode_backend": _TEXT,
    "attention_config.backend": _TEXT,
    "attention_config.backend_per_kind": _OBJECT,
    "attention_config.flash_attn_version": _VERSION,
    "attention_config.use_non_causal": _SWITCH,
    "attention_config.use_trtllm_attention": _SWITCH,
    "aux_output_config.enable_return_routed_experts": _SWITCH,
    "compilation_config.cudagraph_capture_sizes": _COUNTS,
    "compilation_config.max_cudagraph_capture_size": _COUNT,
    "compilation_config.pass_config": _OBJECT,
    "compilation_config.pass_config.fuse_attn_quant": _SWITCH,
    "compilation_config.splitting_ops": _NAMES,
    "compilation_config.use_inductor_graph_partition": _SWITCH,
    "kv_transfer_config.kv_connector": _TEXT,
    "kv_transfer_config.kv_connector_extra_config": _OBJECT,
    "kv_transfer_config.kv_connector_extra_config.use_layerwise": _SWITCH,
}
"""Flag and key, with underscores, and what the value must be."""


def check_keys(values: Mapping[str, Any], where: Mapping[str, str]) -> None:
    """Refuse a value of the wrong kind.

    Args:
        values: of the flags, by name with underscores.
        where: as they were written.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``.
    """
    for path, (fits, words) in _KEYS.items():
        flag, *keys = path.split(".")
        value = values.get(flag)
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None and not fits(value):
            raise CheckError(
                Code.QUESTION_FLAG,
                given=f"{'.'.join(keys)} in {where[flag].partition('.')[0]} is {shown(value)}",
                allowed=words,
                fix="correct the value, or remove the key for vLLM's default",
            )


def without_nulls(value: Any) -> Any:
    """An object without the keys that are null."""
    if not isinstance(value, Mapping):
        return value
    return {key: without_nulls(each) for key, each in value.items() if each is not None}
