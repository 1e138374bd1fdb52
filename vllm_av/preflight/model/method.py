"""Which method drafts, with how many tokens, and what the drafter's config becomes for it.

Rule: as ``SpeculativeConfig.__post_init__`` has it, in its order, odd cases too: a name in the path
of the drafter outweighs a method ``mtp`` or ``draft_model`` that a user wrote.
"""

import re
from collections.abc import Iterable

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.facts import ModelFacts
from vllm_av.preflight.model.fields import Fields
from vllm_av.preflight.model.mtp import Drafted

MOST_DRAFTS = 1024
"""What this package answers for."""
METHODS = (
    "custom_class",
    "dflash",
    "draft_model",
    "dspark",
    "eagle",
    "eagle3",
    "extract_hidden_states",
    "mtp",
    "ngram",
    "ngram_gpu",
    "suffix",
)
_OLDER = ("medusa", "mlp_speculator")  # of vLLM 0.32
_WRITTEN = ("eagle", "eagle3", "dflash", "dspark")
_IN_TARGET = ("mtp", "dspark")
_QWEN_DSPARK = frozenset({"Qwen3DSparkModel", "Qwen3OmniDSparkModel"})
_DSPARK = _QWEN_DSPARK | {"MuseSparkDSparkModel", "Gemma4DSparkModel"}
_NAMES = (
    ("eagle3", re.compile("Eagle3")),
    ("eagle", re.compile("^Eagle(?!2)")),  # Eagle2_5_VL is a model by itself
    ("dflash", re.compile("DFlash")),
    ("dspark", re.compile("DSpark")),
)
_KEEPS_ITS_OWN = _DSPARK | {"K3DSparkModel"}


def tokens(spec: Fields) -> int | None:
    """``num_speculative_tokens``.

    Raises:
        CheckError: it is no number of drafts.
    """
    value = spec.get("num_speculative_tokens")
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():  # as vLLM takes it
        value = int(value)
    if type(value) is int and value > MOST_DRAFTS:
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"num_speculative_tokens is {value:,}",
            allowed=f"at most {MOST_DRAFTS:,}: the limit of this package, vLLM may have none",
            fix="write fewer, such as 7",
        )
    if type(value) is not int or value < 1:
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"num_speculative_tokens is {shown(value)}",
            allowed="a whole number of drafts from 1 on",
            fix="write one, such as 7",
        )
    return value


def asked(spec: Fields) -> tuple[str, str | None]:
    """The method before anything is read, and the drafter's name; None for the target's own.

    Raises:
        CheckError: there is no such method, or nothing says what drafts.
    """
    method, name = spec.text("method"), spec.text("model")
    if method is not None and method.endswith("_mtp"):
        method = "mtp"
    if method is None and name is None:
        raise CheckError(
            Code.QUESTION_SPEC,
            given="the speculative config names neither a method nor a model",
            allowed="a method, a drafter's model, or both",
            fix='add "method" or "model"',
        )
    if method is None:
        assert name is not None
        if name in ("ngram", "[ngram]"):
            return "ngram", name
        return ("custom_class" if _is_import_path(name) else "draft_model"), name
    method = method.strip("[]")
    if method not in METHODS and method not in _OLDER:
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"there is no method {shown(method)}",
            allowed="one of " + ", ".join(METHODS),
            fix="correct the method, or leave it out and let vLLM find it",
        )
    needs = ("eagle", "eagle3", "dflash", "draft_model", *_OLDER)
    if name is None and method in needs:
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"the method {method} is to draft without a model",
            allowed='"model" names the drafter; only those of mtp and dspark lie in the target',
            fix='add "model"',
        )
    return method, name


def _is_import_path(name: str) -> bool:
    """Such as ``package.Class``."""
    parts = name.split(".")
    return "/" not in name and len(parts) >= 2 and all(part.isidentifier() for part in parts)


def settled(method: str, name: str, what: Drafted, target: ModelFacts) -> str:
    """The method that vLLM runs.

    Args:
        method: as it was asked for, ``draft_model`` where none was.
        name: of the drafter, as the user wrote it.
        what: the drafter's config.

    Raises:
        CheckError: vLLM has none.
    """
    if method in _WRITTEN or method in _OLDER:
        return method
    low = name.lower()
    if "eagle-" in low:
        return "eagle"
    if "eagle3" in low:
        return "eagle3"
    if "dflash" in low or "MuseGlimmerAssistantModel" in what.architectures:
        return "dflash"
    if "dspark" in low or not _DSPARK.isdisjoint(what.architectures) or _is_qwen_dspark(what):
        return "dspark"
    if what.is_mtp:
        return "mtp"
    if what.model_type in _OLDER:
        return what.model_type
    if method == "draft_model":
        return method
    place = "the target" if name == target.name else shown(name, 200)
    hint = "; DeepSeek V4.1's modules draft by dspark" if _is_v41(target) else ""
    raise CheckError(
        Code.QUESTION_SPEC,
        given=f"the method is {method}, and {place} holds no MTP modules that vLLM knows "
        f"(it is of the type {shown(what.model_type)}{hint})",
        allowed="mtp with a target, or a drafter, that has MTP modules",
        fix='name a drafter under "model", or another method',
    )


def named_by(architectures: Iterable[str]) -> tuple[str, str] | None:
    """The first architecture that is a drafter's by its name, and the method that it drafts by."""
    return next(
        (
            (name, method)
            for name in architectures
            for method, pattern in _NAMES
            if pattern.search(name)
        ),
        None,
    )


def built(method: str, what: Drafted, target: ModelFacts) -> tuple[tuple[str, ...], str | None]:
    """The architectures and the type that vLLM builds the drafter by."""
    found = what.architectures
    if what.model_type == "speculators":
        return found, None
    if method == "eagle":
        return tuple(_prefixed(each, "Eagle") for each in found), "eagle"
    if method == "eagle3":
        return tuple(
            each if each.endswith("Eagle3") else _prefixed(each, "Eagle3") for each in found
        ), "eagle"
    if method == "dflash":
        return tuple(
            each
            if each.endswith("DFlash") or each == "LiLiCorrDraftModel"
            else _prefixed(each, "DFlash")
            for each in found
        ), "eagle"
    if method == "dspark":
        if _is_qwen_dspark(what):
            return ("Qwen3DSparkModel",), what.model_type
        if _KEEPS_ITS_OWN.isdisjoint(found):
            v41 = _is_v41(target)
            return ("DSparkV41DraftModel" if v41 else "DSparkDraftModel",), (
                "deepseek_v41" if v41 else "deepseek_v4"
            )
    return found, what.model_type


def _prefixed(name: str, prefix: str) -> str:
    return name if name.startswith(prefix) else prefix + name


def _is_qwen_dspark(what: Drafted) -> bool:
    return "DSparkDraftModel" in what.architectures and what.model_type == "qwen3"


def _is_v41(target: ModelFacts) -> bool:
    return bool(target.config.get("model_type") == "deepseek_v41")
