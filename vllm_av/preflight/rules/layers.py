"""Can the attention backend of each group of layers verify trimmed drafts?

Three questions: does vLLM take a backend at all, and can build it; may the device's query lengths
differ from the host's on it; and do its full graphs replay 1 to K+1 tokens per request.

Rule: the target's layers are judged, each group by the backend that vLLM would give it; a fix names
a backend that does for all groups at once, or one for each kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vllm_av.preflight.capabilities import NEVER, Candidate, LayerAnswer
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Change, Reason, ReasonCode
from vllm_av.preflight.rules import alternatives
from vllm_av.preflight.rules.draft_layers import refused, steered
from vllm_av.preflight.rules.groups import (
    KINDS,
    PER_KIND,
    UNTOLD,
    describe,
    named,
    option,
    place,
    selected,
)
from vllm_av.preflight.rules.words import flag, otherwise, refusal, unknown
from vllm_av.preflight.vocabulary import backends

_ABOUT_TRIMMING = "query lens mismatch"


def layers(setup: Setup, answers: Sequence[LayerAnswer]) -> Iterator[Reason]:
    """Every group that stands in the way."""
    for answer in answers:
        yield from _group(setup, answer, answers)


def _group(setup: Setup, answer: LayerAnswer, answers: Sequence[LayerAnswer]) -> Iterator[Reason]:
    name = named(setup, answer.group)
    shown = answer.chosen or next(
        (each for each in answer.candidates if each.name == name),
        answer.candidates[0] if answer.candidates else None,
    )
    if shown is None:
        yield _reason(setup, answer, answers, ReasonCode.BACKEND, None, "vLLM has none for them")
        return
    if shown.source == UNTOLD:
        yield unknown(
            ReasonCode.MODEL,
            asked=f"{describe(answer.group)} through {shown.name}",
            found=f"the table of vLLM {setup.vllm} does not hold this backend",
            where=answer.group.where,
            fix="ask the installed vLLM (--capabilities vllm), or start it: a patched one checks "
            "the layers that it builds before their weights are loaded",
        )
        return
    invalid = [why for why in shown.invalid if _ABOUT_TRIMMING not in why]
    if answer.chosen is None and name is None and _all_invalid(answer):
        why = _each(answer)
    elif invalid and answer.chosen is None:
        why = f"{shown.name} does not take them: {'; '.join(invalid)}"
    elif limits := [each for each in shown.limits if not each.trimming]:
        # Its class takes them, so that vLLM finds out while it builds or first runs the layers.
        told = "; ".join(each.why for each in limits)
        why = f"vLLM takes {shown.name} for them, which then refuses them: {told}"
        shown = replace(shown, source=limits[0].source)
    else:
        for reason in _trimming(setup, answer, answers, shown):
            yield _ended(setup, reason)
        return
    reason = _reason(setup, answer, answers, ReasonCode.BACKEND, shown, why)
    yield reason
    if not reason.changes and answer.candidates:
        # Nothing would do: what stands behind the first reason is told with it.
        best = shown if name or answer.chosen else _best(setup, answer)
        yield from _trimming(setup, answer, answers, best)


def _ended(setup: Setup, reason: Reason) -> Reason:
    """What nothing cures ends with what runs: without adaptive verification the backend would."""
    ways = otherwise(setup)
    return reason if reason.changes or not ways else replace(reason, fix=f"{reason.fix}; {ways}")


def _best(setup: Setup, answer: LayerAnswer) -> Candidate:
    """The candidate that comes nearest to verifying trimmed drafts."""
    need = setup.max_query_len
    return max(answer.candidates, key=lambda each: (each.lens + each.replays(need), each.lens))


def _trimming(
    setup: Setup, answer: LayerAnswer, answers: Sequence[LayerAnswer], shown: Candidate
) -> Iterator[Reason]:
    """The two questions of adaptive verification to a backend."""
    if not shown.lens:
        why = (
            f"{_name(shown)} plans by the host's query lengths, which trimming on the device "
            "changes"
        )
        yield _reason(setup, answer, answers, ReasonCode.LENS, shown, why)
    # Asked too where there are no full graphs yet: that is another rule's reason, and a fix of it.
    cpu = setup.gpu is not None and setup.gpu.platform == "cpu"
    if not cpu and not shown.replays(setup.max_query_len):
        yield _reason(setup, answer, answers, ReasonCode.VARLEN, shown, _narrow(setup, shown))
        return
    for limit in shown.limits:
        if limit.trimming:
            why = f"{_name(shown)} takes queries of one length only: {limit.why}"
            at = replace(shown, source=limit.source)
            yield _reason(setup, answer, answers, ReasonCode.VARLEN, at, why)


def _all_invalid(answer: LayerAnswer) -> bool:
    return all(
        any(_ABOUT_TRIMMING not in why for why in each.invalid) for each in answer.candidates
    )


def _each(answer: LayerAnswer) -> str:
    told = "; ".join(f"{each.name}: {', '.join(each.invalid)}" for each in answer.candidates)
    return f"no backend takes them ({told})"


def _name(candidate: Candidate) -> str:
    return f"{candidate.name} ({candidate.note})" if candidate.note else candidate.name


def _narrow(setup: Setup, candidate: Candidate) -> str:
    if candidate.graphs == NEVER:  # whatever bound the class behind a wrapper has
        most = "nothing"
    elif candidate.bound is not None:
        most = f"up to {candidate.bound} tokens per request"
    else:
        most = "queries of one length only"
    return (
        f"the full graphs of {_name(candidate)} replay {most}; "
        f"K+1 is {setup.max_query_len} ({candidate.graphs})"
    )


def _reason(
    setup: Setup,
    answer: LayerAnswer,
    answers: Sequence[LayerAnswer],
    code: ReasonCode,
    shown: Candidate | None,
    found: str,
) -> Reason:
    group = answer.group
    name = named(setup, group)
    gpu = setup.gpu.name if setup.gpu else "the GPU"
    asked = f"{describe(group)} on {gpu}"
    where = group.where
    if name is not None:
        asked += f" through {name}"
        where = place(setup)
    changes, remark = _fix(setup, answer, answers)
    return refusal(
        code,
        *changes,
        asked=asked,
        found=found,
        where=where,
        fix=remark,
        source=shown.source if shown else None,
    )


def _fix(
    setup: Setup,
    answer: LayerAnswer,
    answers: Sequence[LayerAnswer],
) -> tuple[tuple[Change, ...], str | None]:
    """Another backend, else another setting, else that nothing here does."""
    if changes := instead(setup, answer, answers):
        return changes, None
    if changes := alternatives.change(setup, answer.group):
        return changes, None
    here = setup.gpu.name if setup.gpu else "this GPU"
    what = (
        f"no backend of vLLM {setup.vllm} takes 1 to {setup.max_query_len} tokens per request of "
        f"such layers on {here}"
    )
    elsewhere = alternatives.gpu(setup, answer.group)
    return (), f"{what}; {elsewhere}" if elsewhere else what


def instead(
    setup: Setup, answer: LayerAnswer, answers: Sequence[LayerAnswer], *, without: str = ""
) -> tuple[Change, ...]:
    """The backends to name for ``answer``'s layers; empty where none suffices.

    Args:
        without: a backend that is not to be named.
    """
    if not selected(answer.group):
        return ()
    need = setup.max_query_len
    ours = [each for each in answers if selected(each.group)]
    able = [
        [
            each.name
            for each in one.candidates
            if each.suffices(need) and each.name in backends(setup.vllm) and each.name != without
        ]
        for one in ours
    ]
    mine = able[ours.index(answer)]
    common = [name for name in mine if all(name in names for names in able)]
    if not mine:
        return ()
    proposals = [_one(setup, name) for name in common[:1]]
    proposals.append(_per_kind(setup, ours, able))
    for changes, new in proposals:
        # The same option steers the drafter's layers.
        if not refused(new):
            return changes
    changes, new = proposals[0]
    return (*changes, *steered(new))


def _one(setup: Setup, name: str) -> tuple[tuple[Change, ...], Setup]:
    """One backend for all layers, and the setup with it."""
    away = (flag(PER_KIND),) if setup.backend_per_kind else ()
    new = replace(setup, attention_backend=name, backend_per_kind={})
    return (*away, flag(option(setup), name)), new


def _per_kind(
    setup: Setup, ours: Sequence[LayerAnswer], able: Sequence[Sequence[str]]
) -> tuple[tuple[Change, ...], Setup]:
    """One for each kind, those that suffice as they are."""
    kinds = dict(setup.backend_per_kind)
    for one, names in zip(ours, able, strict=True):
        kind = KINDS[one.group.kind]
        if names and named(setup, one.group) not in names:
            kinds[kind] = names[0]
    return (flag(PER_KIND, kinds),), replace(setup, backend_per_kind=kinds)
