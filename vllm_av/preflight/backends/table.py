"""Answers from the rows of this package: no vLLM, no torch, no GPU.

The selector's own rules are here, for each platform (``get_attn_backend_cls``):

* CUDA, ROCm: a named backend is taken or refused; else the first valid one by priority;
* XPU and the CPU look at no validity: they take their own;
* layers whose model names its backend, or that have a state, never come to the selector.

A selector that this package's series patched also leaves out, where adaptive verification is on,
what cannot replay 1 to K+1 tokens per request; and where nothing is left, or what is named does
not suffice, it takes what it would take without adaptive verification, for the collected check to
refuse with every reason.

Rule: the answer is vLLM's; what it costs adaptive verification is for the rules to say.
"""

from dataclasses import dataclass, replace

from vllm_av.preflight.backends.priorities import priorities
from vllm_av.preflight.backends.query import Query, query
from vllm_av.preflight.backends.row import LENS, MISMATCH, Row, graphs, invalid, says
from vllm_av.preflight.backends.rows import UNNAMEABLE, VERSIONS, own, rows
from vllm_av.preflight.backends.source import line
from vllm_av.preflight.capabilities import ALWAYS, NEVER, Candidate, LayerAnswer
from vllm_av.preflight.facts import LayerGroup, Setup


@dataclass(frozen=True)
class TableCapabilities:
    """The table of one version of vLLM.

    Args:
        version: vLLM's; of one without a table that of the nearest older one is taken, and of one
            older than all the oldest (:func:`nearest`).
    """

    version: str

    def answer(self, setup: Setup, group: LayerGroup) -> LayerAnswer:
        """What that vLLM would do with these layers; ``setup.gpu`` is known."""
        return answer(group, query(setup, group), nearest(self.version))


def nearest(version: str) -> str:
    """The version whose table stands for that one."""
    if version in VERSIONS:
        return version
    older = [each for each in VERSIONS if _numbers(each) <= _numbers(version)]
    return older[0] if older else VERSIONS[-1]


def answer(group: LayerGroup, asked: Query, version: str) -> LayerAnswer:
    """The same for a query; ``version`` has a table."""
    known = rows(version)
    if asked.model_named is not None:
        name = own.named(asked.model_named, asked)
        found = candidate(known.get(name), asked, version, name, ())
        return LayerAnswer(group, found, (found,), found)
    order = priorities(asked, version == "0.32.0")
    if asked.named is not None and asked.named not in order:
        order = [*order, asked.named]
    judged = [_judged(known.get(name), asked, version, name) for name in order]
    chosen, without = choose(judged, asked), choose_without(judged, asked)
    judged.sort(key=lambda each: each is not chosen)  # stable: the rest stays in its order
    return LayerAnswer(group, chosen, (*judged, *_nameable(asked, version, order)), without)


def _nameable(asked: Query, version: str, order: list[str]) -> list[Candidate]:
    """What vLLM does not try by itself, and what would do if the user named it."""
    if not (asked.on("cuda") or asked.on("rocm")):
        return []
    able = [row for row in rows(version).values() if row.name not in order and _fits(row, asked)]
    judged = [_judged(row, asked, version, row.name) for row in able]
    return [each for each in judged if each.suffices(asked.max_query_len)]


def _fits(row: Row, asked: Query) -> bool:
    """Whether it is one for this platform that an option may name."""
    elsewhere = ("CPU_", "AMX_", "XPU_") + (("ROCM_",) if asked.on("cuda") else ())
    return row.name not in UNNAMEABLE and not row.name.startswith(elsewhere)


def _judged(row: Row | None, asked: Query, version: str, name: str) -> Candidate:
    if row is None:
        return candidate(None, asked, version, name, (f"{name} is no backend of this vLLM",))
    if not (asked.on("cuda") or asked.on("rocm")):
        return candidate(row, asked, version, name, ())
    why = invalid(row, asked, adaptive=not asked.patched)
    return candidate(row, asked, version, name, tuple(why))


def choose(judged: list[Candidate], asked: Query) -> Candidate | None:
    """What the selector takes of candidates in its order of priority."""
    named = next((each for each in judged if each.name == asked.named), None)
    if not (asked.on("cuda") or asked.on("rocm")):
        return named if named and asked.on("xpu") else (judged[0] if judged else None)
    if named is not None:
        return None if named.invalid else named
    valid = [each for each in judged if not each.invalid]
    if asked.patched:
        fit = [each for each in valid if each.suffices(asked.max_query_len)]
        valid = [*fit, *valid]
    return valid[0] if valid else None


def choose_without(judged: list[Candidate], asked: Query) -> Candidate | None:
    """The same with adaptive verification off."""
    plain = [
        replace(each, invalid=tuple(why for why in each.invalid if why != MISMATCH))
        for each in judged
    ]
    found = choose(plain, replace(asked, patched=False))
    return None if found is None else judged[plain.index(found)]


def candidate(
    row: Row | None, asked: Query, version: str, name: str, why: tuple[str, ...]
) -> Candidate:
    """One row's answer; of a backend that the table lacks, that nothing is known of it."""
    if row is None:
        return Candidate(name, why or ("not in the table",), False, NEVER, None, "none")
    lens = says(row.lens, asked)
    support, bound, note = graphs(row, asked), row.bound(asked), row.note(asked)
    graphs_at = row.graphs_at
    if asked.chunked:
        support, note = NEVER, "within chunks"
        graphs_at = CHUNKED
    place = row.lens_at if not lens else graphs_at
    if lens and support != ALWAYS and not asked.chunked and row.bound_at:
        place = row.bound_at
    if MISMATCH not in why and why:
        place = row.at
    return Candidate(name, why, lens, support, bound, line(version, place), note)


CHUNKED = (
    "chunked_local_attention.py:create_chunked_local_attention_backend"
    ".ChunkedLocalAttentionBuilder.get_cudagraph_support"
)
"""The wrapper around the backend of layers that attend within chunks."""


def places(version: str) -> set[str]:
    """Every place that an answer of that version may name."""
    found = {CHUNKED, LENS}
    for row in rows(version).values():
        found |= {row.at, row.lens_at, row.graphs_at}
        found.update(row.elsewhere.values())
        if row.bound_at:
            found.add(row.bound_at)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = "".join(c for c in part if c.isdigit())
        numbers.append(int(digits or 0))
    return tuple(numbers)
