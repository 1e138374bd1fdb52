"""A target: its folder's ``config.json``, or a config that vLLM already has, as facts.

Rule: nothing of a model but its config is read.
"""

from collections.abc import Mapping
from typing import Any

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.facts import ModelFacts
from vllm_av.preflight.model import defaults, files, fit, layers, shape, speculators
from vllm_av.preflight.model.fields import MOST_TOKENS, Fields

_TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
_DEEPEST = 4  # sections within each other; published configs have two
_ASKED = {"half": "float16", "float": "float32"}
_FOUND = {  # of a config -> what vLLM runs; with more bits than 16 it wants to be asked
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "bfloat16",
    "float64": "bfloat16",
}


def read_target(
    name: str,
    *,
    overrides: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    disable_sliding_window: bool = False,
) -> ModelFacts:
    """The facts of the model in the folder ``name``, or of that hub name in the cache.

    Args:
        overrides: of ``--hf-overrides``.
        dtype: of ``--dtype``; None or ``auto`` for the config's own.
        revision: of ``--revision``.
        disable_sliding_window: of ``--disable-sliding-window``.

    Raises:
        CheckError: ``AV-QUESTION-MODEL``.
    """
    folder = files.model_folder(name, Code.QUESTION_MODEL, revision)
    config = files.read_config(folder, name, Code.QUESTION_MODEL)
    if overrides:
        config = files.merged(config, overrides)
    try:
        return _from_file(config, name, str(folder / files.CONFIG), dtype, disable_sliding_window)
    except CheckError as error:
        if not overrides:
            raise
        # Which of the two said it is not known here.
        raise CheckError(
            error.code,
            given=f"{error.given}, with --hf-overrides",
            allowed=error.allowed,
            fix="correct --hf-overrides, or the file",
        ) from None


def _from_file(
    config: Mapping[str, Any],
    name: str,
    source: str,
    dtype: str | None,
    disable_sliding_window: bool,
) -> ModelFacts:
    whole = Fields(config, source, Code.QUESTION_MODEL)
    if whole.text("model_type") is None and not speculators.is_speculators(config):
        raise whole.wrong("model_type", "not there", "the type of a model")
    return target_from_config(
        config,
        name=name,
        source=source,
        dtype=dtype,
        disable_sliding_window=disable_sliding_window,
    )


def target_from_config(
    config: Mapping[str, Any],
    *,
    name: str,
    source: str,
    dtype: str | None = None,
    disable_sliding_window: bool = False,
) -> ModelFacts:
    """The same from a config.

    Raises:
        CheckError: ``AV-QUESTION-MODEL``.
    """
    whole = Fields(config, source, Code.QUESTION_MODEL)
    if speculators.is_speculators(config):
        raise _drafter(whole, name)
    text = text_part(whole)
    architectures = whole.texts("architectures")
    if not architectures:
        raise whole.wrong("architectures", "not there", "the name of a model class")
    text = defaults.filled(text)
    if disable_sliding_window:
        text = text.replaced(sliding_window=None)
    num_heads, num_kv_heads = shape.shared_heads(text)
    return ModelFacts(
        name=name,
        architecture=architectures[0],
        groups=layers.groups(architectures[0], whole, text),
        vocab_size=text.count("vocab_size", most=MOST_TOKENS, default=0),
        dtype=model_dtype(whole, text, dtype),
        experts=shape.experts(text),
        config=dict(config),
        source=source,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        hidden_size=fit.width(text),
    )


def _drafter(whole: Fields, name: str) -> CheckError:
    target = speculators.verifier(whole.values)
    return CheckError(
        Code.QUESTION_MODEL,
        given=f"the model {shown(name, 200)} is a drafter in the form of the library speculators"
        + (f", for the target {shown(target, 200)}" if target else ""),
        allowed="a target there, and the drafter in --speculative-config",
        fix='name the target as the model, and the drafter as "model" in --speculative-config',
    )


def text_part(whole: Fields) -> Fields:
    """The language model's part of a config; the whole where it has no other.

    Raises:
        CheckError: the part is no object.
    """
    part = whole
    for _ in range(_DEEPEST):
        inner = next((part.section(name) for name in _TEXT_SECTIONS if name in part), None)
        if inner is None:
            break
        part = inner
    return part


def model_dtype(whole: Fields, text: Fields, asked: str | None) -> str:
    """The dtype that the model runs in where the GPU has bfloat16: float32 only if asked for.

    Raises:
        CheckError: the config names none that a model runs in.
    """
    if asked is not None and asked != "auto":
        return _ASKED.get(asked, asked)
    holder, name = whole, "dtype"
    for fields in (whole, text):
        for key in ("dtype", "torch_dtype"):
            if key in fields and name not in holder:
                holder, name = fields, key
    found = str(holder.get(name) or "float32").removeprefix("torch.")
    if found not in _FOUND:
        raise holder.wrong(holder.where(name), shown(found), "one of " + ", ".join(_FOUND))
    return _FOUND[found]
