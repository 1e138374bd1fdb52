"""The attention backends and types of the KV cache that a command line names.

Rule: a name that vLLM does not know is a mistake in the question.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.flags import Flags
from vllm_av.preflight.vocabulary import backends, cache_types


def one_backend(flags: Flags, attention: Mapping[str, Any], version: str) -> str | None:
    """The one for all layers; None for vLLM's own choice.

    Args:
        flags: the command line.
        attention: its ``--attention-config``.
        version: vLLM's.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``.
    """
    flag, key = flags.get("attention_backend"), attention.get("backend")
    if flag is not None and key is not None:
        raise CheckError(
            Code.QUESTION_FLAG,
            given="--attention-backend and backend in --attention-config are both given",
            allowed="one of the two",
            fix="remove one",
        )
    name = flag if flag is not None else key
    if name is None or str(name).lower() == "auto":
        return None
    place = flags.place("attention_backend") or flags.place("attention_config", "backend")
    return _known(str(name), version, str(place))


def backend_per_kind(flags: Flags, attention: Mapping[str, Any], version: str) -> dict[str, str]:
    """Those for a kind of layers.

    Raises:
        CheckError: as above.
    """
    kinds = attention.get("backend_per_kind")
    if kinds is None:
        return {}
    place = str(flags.place("attention_config", "backend_per_kind"))
    if not isinstance(kinds, Mapping):
        raise CheckError(
            Code.QUESTION_FLAG,
            given=f"{place} is {shown(kinds)}",
            allowed='an object, {"full_attention": NAME, ...}',
            fix="correct it, or remove it",
        )
    return {str(kind): _known(str(name), version, place) for kind, name in kinds.items()}


def cache_type(flags: Flags, version: str) -> str:
    """Of the KV cache.

    Raises:
        CheckError: as above.
    """
    name = str(flags.get("kv_cache_dtype", "auto"))
    names = cache_types(version)
    if name in names or not names:
        return name
    near = get_close_matches(name.lower(), names, n=1)
    raise CheckError(
        Code.QUESTION_FLAG,
        given=f"{flags.place('kv_cache_dtype')} is {shown(name)}",
        allowed=f"a type of vLLM {version}, such as auto, bfloat16 or fp8",
        fix=f"write {near[0]}" if near else "correct it, or remove it for the model's own",
    )


def of_drafter(spec: Mapping[str, Any], version: str) -> None:
    """The drafter's own two names.

    Raises:
        CheckError: ``AV-QUESTION-SPEC``: vLLM has none of that name.
    """
    found = (
        ("attention_backend", str.upper, backends(version)),
        ("kv_cache_dtype", str, cache_types(version)),
    )
    for key, spelt, names in found:
        value = spec.get(key)
        if not isinstance(value, str) or value.lower() == "auto" or not names:
            continue
        if spelt(value) not in names:
            near = get_close_matches(spelt(value), names, n=1)
            raise CheckError(
                Code.QUESTION_SPEC,
                given=f"{key} in the speculative config is {shown(value)}",
                allowed=f"a name that vLLM {version} knows",
                fix=f"write {near[0]}" if near else f"correct it, or remove {key}",
            )


def _known(name: str, version: str, place: str) -> str:
    """A backend as vLLM spells it.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: it has none of that name.
    """
    names = backends(version)
    if name.upper() in names or not names:
        return name.upper()
    near = get_close_matches(name.upper(), names, n=1)
    raise CheckError(
        Code.QUESTION_FLAG,
        given=f"{place} is {shown(name)}",
        allowed=f"a backend of vLLM {version}, such as FLASH_ATTN or TRITON_ATTN",
        fix=f"write {near[0]}" if near else "correct it, or remove it for vLLM's own choice",
    )
