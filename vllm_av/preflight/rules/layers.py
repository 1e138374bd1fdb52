"""Can the attention backend of each group of layers verify trimmed drafts?

Three questions: does vLLM take a backend at all, may the device's query lengths differ from the
host's on it, and do its full graphs replay 1 to K+1 tokens per request.

Rule: the target's layers are judged, each group by the backend that vLLM would give it; a fix names
a backend that does for all groups at once, or one for each kind.
"""

from collections.abc import Iterator, Sequence

from vllm_av.preflight.capabilities import NEVER, Candidate, LayerAnswer
from vllm_av.preflight.facts import LayerGroup, LayerKind, Setup
from vllm_av.preflight.reasons import Change, Reason, ReasonCode
from vllm_av.preflight.rules import alternatives
from vllm_av.preflight.rules.words import flag, refusal, unknown

UNTOLD = "none"
"""The source of an answer about a backend that the table lacks."""
_ABOUT_TRIMMING = "query lens mismatch"
_KINDS = {
    LayerKind.FULL: "full_attention",
    LayerKind.CHUNKED: "full_attention",
    LayerKind.SLIDING: "sliding_window",
    LayerKind.MLA: "mla_attention",
    LayerKind.MLA_SPARSE: "mla_attention",
}
"""What vLLM's selector is asked about -> its name in ``backend_per_kind``."""
_PER_KIND = "attention-config.backend_per_kind"


def layers(setup: Setup, answers: Sequence[LayerAnswer]) -> Iterator[Reason]:
    """Every group that stands in the way."""
    for answer in answers:
        yield from _group(setup, answer, answers)


def describe(group: LayerGroup) -> str:
    """``28 layers of full attention``."""
    return f"{group.count} layer{'' if group.count == 1 else 's'} of {group.kind}"


def selected(group: LayerGroup) -> bool:
    """Whether the selector, and with it the user, has a say about the backend."""
    return group.backend is None and group.kind in _KINDS


def named(setup: Setup, group: LayerGroup) -> str | None:
    """The backend that the user names for these layers."""
    if not selected(group):
        return None
    return setup.backend_per_kind.get(_KINDS[group.kind], setup.attention_backend)


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
        yield _reason(setup, answer, answers, ReasonCode.BACKEND, None, _each(answer))
        return
    if invalid and answer.chosen is None:
        why = f"{shown.name} does not take them: {'; '.join(invalid)}"
        yield _reason(setup, answer, answers, ReasonCode.BACKEND, shown, why)
        return
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
    if candidate.bound is not None:
        most = f"up to {candidate.bound} tokens per request"
    elif candidate.graphs == NEVER:
        most = "nothing"
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
        where = _place(setup)
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
        [each.name for each in one.candidates if each.suffices(need) and each.name != without]
        for one in ours
    ]
    mine = able[ours.index(answer)]
    common = [name for name in mine if all(name in names for names in able)]
    away = (flag(_PER_KIND),) if setup.backend_per_kind else ()
    option = _option(setup)
    if common:
        return (*away, flag(option, common[0]))
    if not mine:
        return ()
    kinds = dict(setup.backend_per_kind)
    for one, names in zip(ours, able, strict=True):
        kind = _KINDS[one.group.kind]
        if names and (kinds.get(kind) not in names):
            kinds[kind] = names[0]
    return (flag(_PER_KIND, kinds),)


def _option(setup: Setup) -> str:
    """Where the user named it, or the shorter of the two."""
    config = setup.features.get("attention_config") or {}
    return "attention-config.backend" if "backend" in config else "attention-backend"


def _place(setup: Setup) -> str:
    default = setup.place("attention_config", "--attention-config")
    if setup.backend_per_kind:
        return setup.place("attention_config.backend_per_kind", default)
    return setup.place("attention_backend", setup.place("attention_config.backend", default))
