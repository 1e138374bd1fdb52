"""A drafter: what vLLM's ``SpeculativeConfig`` would make of a ``--speculative-config``.

Rule: the method is settled in the order of ``SpeculativeConfig.__post_init__``.
"""

from collections.abc import Collection, Mapping
from typing import Any

from vllm_av.config.text import shown
from vllm_av.drafters import drafter_type
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.facts import DraftFacts, ModelFacts
from vllm_av.preflight.model import defaults, draft_layers, files, fit, heads, shape, speculators
from vllm_av.preflight.model.fields import MOST_TOKENS, Fields
from vllm_av.preflight.model.method import asked, built, named_by, settled, tokens
from vllm_av.preflight.model.mtp import Drafted, drafted
from vllm_av.preflight.model.target import text_part
from vllm_av.preflight.model.tensors import tensor_names


def read_draft(speculative: Mapping[str, Any], target: ModelFacts) -> DraftFacts:
    """The facts of the drafter that ``speculative`` asks for.

    Args:
        speculative: the ``--speculative-config``, keys with underscores.
        target: whose modules may draft.

    Raises:
        CheckError: ``AV-QUESTION-SPEC`` where vLLM itself would not take the config,
            ``AV-QUESTION-DRAFT`` where the drafter cannot be read.
    """
    spec = Fields(speculative, "the speculative config", Code.QUESTION_SPEC)
    method, name = asked(spec)
    count = tokens(spec)
    if method in ("ngram", "ngram_gpu", "suffix", "custom_class", "extract_hidden_states"):
        return _without_model(spec, method, count, target)
    own = name is None
    name = target.name if name is None else name
    folder = files.model_folder(name, Code.QUESTION_DRAFT, spec.text("revision"))
    config = files.read_config(folder, name, Code.QUESTION_DRAFT)
    source = "the target's own" if own else str(folder / files.CONFIG)
    whole = Fields(config, source, Code.QUESTION_DRAFT)
    what = _drafted(whole)
    method = settled(method, name, what, target)
    _is_whole(whole, what, method)
    if method == "draft_model":
        _is_model(whole, what)
    facts = draft_from_config(
        config,
        method=method,
        num_speculative_tokens=count,
        target=target,
        tensors=tensor_names(folder, Code.QUESTION_DRAFT),
        parallel=spec.flag("parallel_drafting"),
        source=source,
    )
    if method == "draft_model" and not spec.flag("use_heterogeneous_vocab"):
        _same_vocabulary(facts, what, target)
    return facts


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
    """The same from a drafter's config, whether vLLM has looked at it already or not.

    Args:
        method: as vLLM settles it.
        num_speculative_tokens: None where the drafter's own number is to hold.
        tensors: the names in its checkpoint; None where they are not known.
        parallel: vLLM's ``parallel_drafting``.

    Raises:
        CheckError: as above.
    """
    what = _drafted(Fields(config, source, Code.QUESTION_DRAFT))
    text = defaults.filled(text_part(what.fields))
    architectures, model_type = built(method, what, target)
    count = _count(num_speculative_tokens, method, what, text)
    found = heads.confidence(method, architectures, text, tensors)
    row = drafter_type(
        method,
        architectures,
        model_type=model_type,
        mtp_modules=min(max(1, what.modules), count),
        parallel=parallel and method not in ("dflash", "dspark"),
        has_head=found is not False,
    )
    vocabulary = text.optional("draft_vocab_size", "vocab_size", most=MOST_TOKENS)
    return DraftFacts(
        method=method,
        type_name=row.name if row else None,
        architecture=architectures[0] if architectures else None,
        num_speculative_tokens=count,
        has_head=found,
        output_head=heads.output(text, tensors),
        vocab_size=target.vocab_size or None,
        draft_vocab_size=vocabulary or target.vocab_size or None,
        source=source,
        groups=draft_layers.groups(method, architectures, text, max(1, what.modules)),
        num_heads=shape.shared_heads(text)[0],
        reads_layers=fit.reads_layers(method, text),
        target_hidden_size=fit.target_width(method, architectures, text),
    )


def _is_whole(whole: Fields, what: Drafted, method: str) -> None:
    """Refuse a config of which vLLM cannot tell what kind of model it is.

    Raises:
        CheckError: ``AV-QUESTION-DRAFT``.
    """
    if not speculators.is_speculators(whole.values) and whole.text("model_type") is None:
        raise whole.wrong("model_type", "not there", "the type of a model")
    if method in ("eagle", "eagle3", "dflash") and not what.architectures:
        raise whole.wrong("architectures", "not there", "the name of a model class")


def _is_model(whole: Fields, what: Drafted) -> None:
    """Refuse a drafter that reads the target's states and would be run as a model by itself.

    Raises:
        CheckError: ``AV-QUESTION-DRAFT``.
    """
    if found := named_by(what.architectures):
        architecture, method = found
        raise CheckError(
            Code.QUESTION_DRAFT,
            given=f"architectures in {shown(whole.source, 200)} names {shown(architecture)}, which "
            f"drafts by {method}; without that method vLLM takes it for a draft model",
            allowed="a draft model is a model by itself",
            fix=f'add "method": "{method}"',
        )


def _drafted(whole: Fields) -> Drafted:
    if speculators.is_speculators(whole.values):
        whole = speculators.unfolded(whole)
    return drafted(whole, text_part(whole))


def _count(given: int | None, method: str, what: Drafted, text: Fields) -> int:
    """K, which the drafter's config may say."""
    natural = what.predicts
    if method == "dspark":
        natural = text.optional("block_size", "dspark_block_size", most=MOST_TOKENS)
    if given is None and (not natural or method == "mtp"):  # of mtp vLLM wants it written
        raise CheckError(
            Code.QUESTION_SPEC,
            given="the speculative config has no num_speculative_tokens, and the drafter's "
            "config says no number either",
            allowed="a whole number of drafts from 1 on",
            fix='add "num_speculative_tokens"',
        )
    if given is None:
        assert natural
        return natural
    if method != "dspark" and natural and given > natural and given % natural:
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"num_speculative_tokens is {given}, and the drafter predicts {natural} at once",
            allowed="vLLM wants a multiple of that number",
            fix=f'write "num_speculative_tokens": {given // natural * natural}',
        )
    return given


def _same_vocabulary(facts: DraftFacts, what: Drafted, target: ModelFacts) -> None:
    if not target.vocab_size or facts.draft_vocab_size == target.vocab_size:
        return
    key = text_part(what.fields).where("draft_vocab_size", "vocab_size")
    raise CheckError(
        Code.QUESTION_DRAFT,
        given=f"{key} in {shown(facts.source, 200)} is {facts.draft_vocab_size}, and the "
        f"target's is {target.vocab_size}",
        allowed="vLLM takes a draft model of the target's own vocabulary",
        fix="draft with another model, such as a smaller one of the target's own family",
    )


def _without_model(spec: Fields, method: str, count: int | None, target: ModelFacts) -> DraftFacts:
    if count is None and method == "suffix":
        count = spec.count("suffix_decoding_max_tree_depth", most=1 << 20, default=24)
    if count is None:
        raise CheckError(
            Code.QUESTION_SPEC,
            given=f"the method {method} has no num_speculative_tokens",
            allowed="a whole number of drafts from 1 on",
            fix='add "num_speculative_tokens"',
        )
    row = drafter_type(method)
    return DraftFacts(
        method=method,
        type_name=row.name if row else None,
        architecture=None,
        num_speculative_tokens=count,
        has_head=False,
        output_head=False,
        vocab_size=target.vocab_size or None,
        draft_vocab_size=None,
        source="the speculative config",
    )
