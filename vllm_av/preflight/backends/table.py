"""Answers from the rows of this package: no vLLM, no torch, no GPU.

Rule: what is not in the table is said to be unknown, never guessed.
"""

from dataclasses import dataclass

from vllm_av.preflight.backends.priorities import priorities
from vllm_av.preflight.backends.query import Query, query
from vllm_av.preflight.backends.row import (
    ALIBI_SQRT,
    LENS,
    MISMATCH,
    Row,
    graphs,
    invalid,
    met,
    says,
)
from vllm_av.preflight.backends.rows import UNNAMEABLE, own, rows
from vllm_av.preflight.backends.selector import choose, choose_without, validates, within_chunks
from vllm_av.preflight.backends.source import line
from vllm_av.preflight.backends.versions import nearest
from vllm_av.preflight.capabilities import ALWAYS, NEVER, Candidate, LayerAnswer, Limit
from vllm_av.preflight.facts import LayerGroup, Setup


@dataclass(frozen=True)
class TableCapabilities:
    """The table of one version of vLLM.

    Args:
        version: vLLM's; for one without a table the nearest stands.
    """

    version: str

    def answer(self, setup: Setup, group: LayerGroup) -> LayerAnswer:
        """What that vLLM would do with these layers; ``setup.gpu`` is known."""
        return answer(group, query(setup, group), nearest(self.version))


def answer(group: LayerGroup, asked: Query, version: str) -> LayerAnswer:
    """The same for a query; ``version`` has a table."""
    known = rows(version)
    if asked.model_named is not None:
        name = own.named(asked.model_named, asked)
        only = candidate(known.get(name), asked, version, name, ())
        return LayerAnswer(group, only, (only,), only)
    order = priorities(asked)
    if asked.named is not None and asked.named not in order:
        order = [*order, asked.named]
    judged = [_judged(known.get(name), asked, version, name) for name in order]
    chosen, without = choose(judged, asked), choose_without(judged, asked)
    judged.sort(key=lambda each: each is not chosen)  # stable: the rest stays in its order
    every = (*judged, *_nameable(asked, version, order))
    found = LayerAnswer(group, chosen, every, without)
    return within_chunks(found, line(version, CHUNKED)) if asked.chunked else found


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
    special = row.name in UNNAMEABLE or row.name.endswith("_DIFFKV")
    return not special and not row.name.startswith(elsewhere)


def _judged(row: Row | None, asked: Query, version: str, name: str) -> Candidate:
    if row is None:
        return candidate(None, asked, version, name, (f"{name} is no backend of this vLLM",))
    why = invalid(row, asked, adaptive=not asked.patched) if validates(name, asked) else []
    return candidate(row, asked, version, name, tuple(why))


def candidate(
    row: Row | None, asked: Query, version: str, name: str, why: tuple[str, ...]
) -> Candidate:
    """One row's answer; of a backend that the table lacks, that nothing is known of it."""
    if row is None:
        return Candidate(name, why or ("not in the table",), False, NEVER, None, "none")
    lens = says(row.lens, asked)
    support, bound, note = graphs(row, asked), row.bound(asked), row.note(asked)
    family = f"sm{asked.gpu.major}" if asked.on("cuda") else asked.gpu.platform
    place = row.graphs_elsewhere.get(family, row.graphs_at)
    if set(why) - {MISMATCH}:
        place = row.at
    elif not lens:
        place = row.lens_at
    elif support != ALWAYS and row.bound_at:
        place = row.bound_at
    more = limits(row, asked, version)
    return Candidate(name, why, lens, support, bound, line(version, place), note, more)


def limits(row: Row | None, asked: Query, version: str) -> tuple[Limit, ...]:
    """What the backend's code refuses of these layers, which neither selector nor class says."""
    return tuple(
        Limit(bar.why, line(version, bar.at), bar.trimming)
        for bar in (met(row, asked) if row is not None else ())
    )


CHUNKED = (
    "chunked_local_attention.py:create_chunked_local_attention_backend"
    ".ChunkedLocalAttentionBuilder.get_cudagraph_support"
)
"""The wrapper around the backend of layers that attend within chunks."""


def places(version: str) -> set[str]:
    """Every place that an answer of that version may name."""
    found = {CHUNKED, LENS, ALIBI_SQRT.at}
    for row in rows(version).values():
        found |= {row.at, row.lens_at, row.graphs_at}
        found.update(row.elsewhere.values(), row.graphs_elsewhere.values())
        found.update(bar.at for bar in row.bars)
        if row.bound_at:
            found.add(row.bound_at)
    return found
