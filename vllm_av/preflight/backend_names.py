"""The attention backends that a command line names.

Rule: a name that vLLM does not know is a mistake in the question.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.backends.rows import rows
from vllm_av.preflight.backends.versions import nearest
from vllm_av.preflight.flags import Flags


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


def _known(name: str, version: str, place: str) -> str:
    """A backend as vLLM spells it.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: it has none of that name.
    """
    names = [*rows(nearest(version)), "CUSTOM"]
    if name.upper() in names:
        return name.upper()
    near = get_close_matches(name.upper(), names, n=1)
    raise CheckError(
        Code.QUESTION_FLAG,
        given=f"{place} is {shown(name)}",
        allowed=f"a backend of vLLM {version}, such as FLASH_ATTN or TRITON_ATTN",
        fix=f"write {near[0]}" if near else "correct it, or remove it for vLLM's own choice",
    )
