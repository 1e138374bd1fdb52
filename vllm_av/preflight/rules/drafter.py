"""Does this drafter estimate its acceptance, and will any of its drafts be accepted?

Rule: the types are those of :mod:`vllm_av.drafters`, held against vLLM's source by a test.
"""

from collections.abc import Iterator

from vllm_av.drafters import TYPES, DrafterType
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.words import key, refusal, spec_place

_OTHERS = "draft with EAGLE, MTP, DFlash, DSpark or a draft model"
_OWN_HEAD = ("eagle3", "dflash", "dspark")
"""Methods whose drafters may draft from a vocabulary of their own."""


def row_of(setup: Setup) -> DrafterType | None:
    """The type of the drafter, where it is known."""
    name = setup.draft.type_name
    return next((row for row in TYPES if row.name == name), None)


def estimates(setup: Setup) -> bool:
    """Whether this drafter, in this vLLM, asks a scorer."""
    row = row_of(setup)
    return row is not None and row.estimates and setup.vllm in (*row.vllm, *_untold(setup))


def _untold(setup: Setup) -> tuple[str, ...]:
    """A vLLM that no row speaks of; that is told as such."""
    known = {version for row in TYPES for version in row.vllm}
    return () if setup.vllm in known else (setup.vllm,)


def drafter(setup: Setup) -> Iterator[Reason]:
    """Its type."""
    row = row_of(setup)
    if estimates(setup):
        return
    method = setup.draft.method
    where = spec_place(setup, "method" if "method" in setup.speculative else "model")
    source = "drafters.py of this package, held against vLLM's speculators"
    if row is None:
        yield refusal(
            ReasonCode.DRAFTER,
            asked=f"drafts by the method {method}",
            found="vLLM's V2 model runner has no such drafter",
            where=where,
            fix=_OTHERS,
            source=source,
        )
    elif row.parallel:
        yield refusal(
            ReasonCode.DRAFTER,
            key("parallel_drafting", False),
            asked=f"{row.title} ({method} with parallel_drafting)",
            found=str(row.refusal),
            where=spec_place(setup, "parallel_drafting"),
            source=source,
        )
    else:
        found = row.refusal or f"vLLM {setup.vllm} does not offer it, {' and '.join(row.vllm)} do"
        yield refusal(
            ReasonCode.DRAFTER,
            asked=f"drafts by {row.title} ({method})",
            found=found,
            where=where,
            fix=_OTHERS,
            source=source,
        )


def vocabulary(setup: Setup) -> Iterator[Reason]:
    """Drafts of a reduced vocabulary from an output head that was never loaded."""
    draft = setup.draft
    known = draft.draft_vocab_size is not None and draft.vocab_size is not None
    own = known and draft.draft_vocab_size != draft.vocab_size
    if draft.method in _OWN_HEAD and own and draft.output_head is False:
        yield refusal(
            ReasonCode.DRAFT_VOCABULARY,
            asked=f"drafts from {draft.draft_vocab_size:,} of {draft.vocab_size:,} tokens",
            found="the checkpoint holds no output head for them; vLLM loads it without a word, "
            "and nothing is accepted",
            where=draft.source,
            fix="draft from a checkpoint that holds its lm_head",
        )


RULES = (drafter, vocabulary)
