"""Can the drafter's own layers run over the target's trimmed batch?

EAGLE, MTP and a draft model prefill over the batch that was trimmed, so that their layers too must
not plan by the host's query lengths; their graphs are their own, and no bound is asked of them.
vLLM finds out when it builds the drafter, after the target's weights, or not at all.

Rule: the drafter's layers are selected as vLLM selects them, from the table of that vLLM: what
plans by the host's lengths is left out, and refused where it is named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.capabilities import Candidate, LayerAnswer
from vllm_av.preflight.facts import LayerGroup, Setup
from vllm_av.preflight.reasons import Change, Reason, ReasonCode
from vllm_av.preflight.rules import alternatives
from vllm_av.preflight.rules.groups import KINDS, PER_KIND, UNTOLD, describe, named, place
from vllm_av.preflight.rules.words import flag, key, refusal, spec_place, unknown

_KEY = "attention_backend"
_CACHE, _CACHE_FLAG = "kv_cache_dtype", "kv-cache-dtype"
_DRAFT_MODEL = "draft_model"
"""The method whose layers only the target's options steer."""


def draft_layers(setup: Setup, answers: Sequence[LayerAnswer]) -> Iterator[Reason]:
    """Every group of the drafter's layers that stands in the way by itself."""
    drafter = _as_drafter(setup)
    shared = {named(setup, each.group) for each in answers if not _fits(each.chosen)}
    for answer in refused(setup):
        name = named(drafter, answer.group)
        if name is not None and name in shared:
            continue  # the same option, told of the target's layers, mends it
        shown = _shown(answer, name)
        yield (
            _untold(setup, answer, shown)
            if shown.source == UNTOLD
            else _reason(setup, answer, name)
        )


def refused(setup: Setup) -> list[LayerAnswer]:
    """The groups of the drafter's layers for which vLLM finds no backend, or one that fails."""
    if setup.gpu is None or setup.vllm not in SUPPORTED:
        return []
    table = TableCapabilities(setup.vllm)
    drafter = _as_drafter(setup)
    answers = [table.answer(drafter, group) for group in setup.draft.groups]
    return [each for each in answers if not _fits(each.chosen)]


def steered(setup: Setup) -> tuple[Change, ...]:
    """What lets the drafter have another backend than the target's."""
    names = [name for answer in refused(setup) for name in _able(answer)]
    return (key(_KEY, names[0]),) if names and setup.draft.method != _DRAFT_MODEL else ()


def _as_drafter(setup: Setup) -> Setup:
    """The setup as the selector sees it for the drafter's layers: as released, no bound asked."""
    own = None if setup.draft.method == _DRAFT_MODEL else _text(setup.speculative.get(_KEY))
    cache = setup.speculative.get(_CACHE)
    return replace(
        setup,
        patched=False,
        attention_backend=own.upper() if own else setup.attention_backend,
        kv_cache_dtype=cache if isinstance(cache, str) else setup.kv_cache_dtype,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.lower() != "auto" else None


def _fits(candidate: Candidate | None) -> bool:
    """Whether it takes these layers, and trimmed lengths with them."""
    return candidate is not None and _runs(candidate)


def _runs(candidate: Candidate) -> bool:
    return candidate.lens and not candidate.invalid and not candidate.limits


def _able(answer: LayerAnswer) -> list[str]:
    return [each.name for each in answer.candidates if _runs(each)]


def _instead(setup: Setup, group: LayerGroup, name: str) -> tuple[Change, ...]:
    """Another backend for the drafter's layers; what names one for their kind goes before it."""
    kind = KINDS.get(group.kind)
    if kind not in setup.backend_per_kind:
        return (key(_KEY, name),)
    kept = {each: value for each, value in setup.backend_per_kind.items() if each != kind}
    return (flag(PER_KIND, kept or None), key(_KEY, name))


def _shown(answer: LayerAnswer, name: str | None) -> Candidate:
    return answer.chosen or next(
        (each for each in answer.candidates if each.name == name), answer.candidates[0]
    )


def _untold(setup: Setup, answer: LayerAnswer, shown: Candidate) -> Reason:
    own = setup.speculative.get(_KEY) is not None
    return unknown(
        ReasonCode.MODEL,
        asked=f"the drafter's {describe(answer.group)} through {shown.name}",
        found=f"the table of vLLM {setup.vllm} does not hold this backend",
        where=spec_place(setup, _KEY) if own else place(setup),
        fix="name another, or start it: vLLM asks the class when it builds the drafter",
    )


def _reason(setup: Setup, answer: LayerAnswer, name: str | None) -> Reason:
    shown = _shown(answer, name)
    code, found, source = _found(shown)
    changes = _changes(setup, answer)
    own = setup.speculative.get(_KEY) is not None
    where = answer.group.where
    if name is not None:
        where = spec_place(setup, _KEY) if own else place(setup)
    return refusal(
        code,
        *changes,
        asked=f"the drafter's {describe(answer.group)}" + (f" through {name}" if name else ""),
        found=found,
        where=where,
        fix=None if changes else "draft by DFlash or DSpark, whose layers see whole blocks",
        source=source,
    )


def _found(shown: Candidate) -> tuple[ReasonCode, str, str]:
    """What stands against it."""
    if not shown.lens:
        why = "plans by the host's query lengths, and the drafter reads the batch that was trimmed"
        return ReasonCode.LENS, f"{shown.name} {why}", shown.source
    if shown.invalid:
        told = "; ".join(shown.invalid)
        return ReasonCode.BACKEND, f"{shown.name} does not take them: {told}", shown.source
    limit = shown.limits[0]
    if limit.trimming:
        found = f"{shown.name} takes queries of one length only: {limit.why}"
        return ReasonCode.VARLEN, found, limit.source
    found = f"vLLM takes {shown.name} for them, which then refuses them: {limit.why}"
    return ReasonCode.BACKEND, found, limit.source


def _changes(setup: Setup, answer: LayerAnswer) -> tuple[Change, ...]:
    """Another setting where one stands in the way, of the target's layers too; else a backend."""
    if answer.chosen is not None and answer.chosen.limits:
        found = alternatives.change(_as_drafter(setup), answer.group, _runs)
        if found == (flag(_CACHE_FLAG),) and isinstance(setup.speculative.get(_CACHE), str):
            return (key(_CACHE),)
        if found:
            return found
    able = _able(answer) if setup.draft.method != _DRAFT_MODEL else []
    return _instead(setup, answer.group, able[0]) if able else ()
