"""A drafter: what vLLM's ``SpeculativeConfig`` would make of a ``--speculative-config``.

Rule: the method is settled in the order of ``SpeculativeConfig.__post_init__``.
"""

from collections.abc import Collection, Mapping
from typing import Any

from vllm_av.config.text import shown
from vllm_av.drafters import drafter_type
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.facts import DraftFacts, ModelFacts
from vllm_av.preflight.model import files
from vllm_av.preflight.model.fields import MOST_TOKENS, Fields
from vllm_av.preflight.model.target import text_part
from vllm_av.preflight.model.tensors import tensor_names

MOST_DRAFTS = 1024
_HEAD = "confidence_head"
_WITHOUT_MODEL = ("ngram", "[ngram]", "ngram_gpu", "suffix", "custom_class")
_WITH_OWN_NAME = ("eagle", "eagle3", "dflash", "dspark")


def read_draft(speculative: Mapping[str, Any], target: ModelFacts) -> DraftFacts:
    """The facts of the drafter that ``speculative`` asks for.

    Args:
        speculative: the ``--speculative-config``, keys with underscores.

    Raises:
        CheckError: ``AV-QUESTION-DRAFT``, ``AV-QUESTION-SPEC``.
    """
    spec = Fields(speculative, "the speculative config", Code.QUESTION_SPEC)
    method, name = spec.text("method"), spec.text("model")
    asked = spec.optional("num_speculative_tokens", most=MOST_DRAFTS)
    if method is None and name is None:
        raise CheckError(
            Code.QUESTION_SPEC,
            given="the speculative config names neither a method nor a model",
            allowed="a method, a drafter's model, or both",
            fix='add "method" or "model"',
        )
    if method is not None and method.endswith("_mtp"):
        method = "mtp"
    if method in _WITHOUT_MODEL or name in ("ngram", "[ngram]"):
        method = (method or "ngram").strip("[]")
        return _without_model(method, _settled(asked, None), target)
    own = name is None
    if own and method not in ("mtp", "dspark"):
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"the method {shown(method)} is to draft without a model",
            allowed='"model" names the drafter; only mtp and dspark may lie in the target itself',
            fix='add "model"',
        )
    name = target.name if name is None else name
    folder = files.model_folder(name, Code.QUESTION_DRAFT, spec.text("revision"))
    config = files.read_config(folder, name, Code.QUESTION_DRAFT)
    return draft_from_config(
        config,
        method=method or _detected(name, config),
        num_speculative_tokens=asked,
        target=target,
        tensors=tensor_names(folder, Code.QUESTION_DRAFT),
        parallel=spec.flag("parallel_drafting"),
        source="the target's own" if own else str(folder / files.CONFIG),
    )


def draft_from_config(
    config: Mapping[str, Any],
    *,
    method: str,
    num_speculative_tokens: int | None,
    target: ModelFacts,
    tensors: Collection[str] | None = None,
    parallel: bool = False,
    source: str = "vLLM's config",
) -> DraftFacts:
    """The same from a drafter's config.

    Args:
        method: as vLLM settles it.
        num_speculative_tokens: None where the drafter's own number is to hold.
        tensors: the names in its checkpoint; None where they are not known.

    Raises:
        CheckError: as above.
    """
    fields = Fields(config, source, Code.QUESTION_DRAFT)
    text = text_part(fields)
    architectures = fields.texts("architectures")
    modules = text.optional("num_nextn_predict_layers", most=1000, least=0) or 1
    natural = fields.optional("block_size", most=1 << 20) if method == "dspark" else None
    if method == "mtp":
        natural = modules
    count = _settled(num_speculative_tokens, natural)
    head = output = None
    if tensors is not None:
        head = method == "dspark" and any(_HEAD in name for name in tensors)
        output = any("lm_head" in name for name in tensors)
    row = drafter_type(
        method,
        architectures,
        model_type=fields.text("model_type"),
        mtp_modules=min(modules, count),
        parallel=parallel,
        has_head=bool(head),
    )
    return DraftFacts(
        method=method,
        type_name=row.name if row else None,
        architecture=architectures[0] if architectures else None,
        num_speculative_tokens=count,
        has_head=head,
        output_head=output,
        vocab_size=target.vocab_size,
        draft_vocab_size=text.count("draft_vocab_size", "vocab_size", most=MOST_TOKENS),
        source=source,
    )


def _detected(name: str, config: Mapping[str, Any]) -> str:
    low = name.lower()
    for method, mark in (("eagle", "eagle-"), ("eagle3", "eagle3"), ("dflash", "dflash")):
        if mark in low:
            return method
    return "dspark" if "dspark" in low else "draft_model"


def _settled(asked: int | None, natural: int | None) -> int:
    if asked is not None or natural is not None:
        return asked or natural or 1
    raise CheckError(
        Code.QUESTION_SPEC,
        given="the speculative config has no num_speculative_tokens, nor does the drafter say one",
        allowed=f"a whole number from 1 to {MOST_DRAFTS:,}",
        fix='add "num_speculative_tokens"',
    )


def _without_model(method: str, count: int, target: ModelFacts) -> DraftFacts:
    row = drafter_type(method)
    return DraftFacts(
        method=method,
        type_name=row.name if row else None,
        architecture=None,
        num_speculative_tokens=count,
        has_head=False,
        output_head=False,
        vocab_size=target.vocab_size,
        draft_vocab_size=None,
        source="the speculative config",
    )
