"""The whole check: a question in, a verdict with every reason out.

Rule: nothing is loaded and nothing is imported of vllm or torch in this process; whoever is asked
about attention backends is named in the answer.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vllm_av.config.block import BLOCK
from vllm_av.preflight.capabilities import Candidate, Capabilities, LayerAnswer
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.question import Asked, Question, ask
from vllm_av.preflight.reasons import Reason, Verdict, Weight
from vllm_av.preflight.rules import Judgement, judge
from vllm_av.preflight.rules.layers import describe


class Ways(StrEnum):
    """Who is asked about attention backends."""

    AUTO = "auto"
    """The installed vLLM's own classes where it is the one that is asked about, else the table."""
    TABLE = "table"
    VLLM = "vllm"


@dataclass(frozen=True)
class Answer:
    """What the check found.

    Args:
        asked: the question, as it was understood.
        judgement: the reasons, the layers, the scorer.
        source: who was asked about attention backends, for people.
        notes: what else to know.
    """

    asked: Asked
    judgement: Judgement
    source: str
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """In a word."""
        return self.judgement.verdict

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All of them, refusals first."""
        return self.judgement.reasons

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        setup = self.asked.setup
        draft = setup.draft
        return {
            "verdict": str(self.verdict),
            "reasons": [reason.as_dict() for reason in self.reasons],
            "layers": [_layer(answer) for answer in self.judgement.layers],
            "capabilities": self.source,
            "scorer": self.judgement.scorer.as_dict(),
            "vllm": {"version": setup.vllm, "patched": setup.patched},
            "gpu": None
            if setup.gpu is None
            else {
                "name": setup.gpu.name,
                "platform": setup.gpu.platform,
                "capability": [setup.gpu.major, setup.gpu.minor],
            },
            "model": {
                "name": setup.target.name,
                "architecture": setup.target.architecture,
                "source": setup.target.source,
            },
            "drafter": {
                "method": draft.method,
                "type": draft.type_name,
                "architecture": draft.architecture,
                "num_speculative_tokens": draft.num_speculative_tokens,
                "confidence_head": draft.has_head,
                "source": draft.source,
            },
            "settings": {
                "cudagraph_mode": setup.cudagraph_mode,
                "max_cudagraph_capture_size": setup.max_capture_size,
                "max_num_seqs": setup.max_num_seqs,
                "max_num_batched_tokens": setup.max_num_batched_tokens,
                "tensor_parallel_size": setup.tensor_parallel_size,
                "decode_context_parallel_size": setup.decode_context_parallel_size,
                "kv_cache_dtype": setup.kv_cache_dtype,
            },
            "not_looked_at": list(self.asked.flags.not_looked_at),
            "notes": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.verdict}: {self._headline()}"
        yield from (f"  {reason}" for reason in self.reasons)
        if self.judgement.layers:
            yield f"attention backends, by {self.source}"
            yield from (f"  {_told(answer)}" for answer in self.judgement.layers)
        scorer = self.judgement.scorer
        yield f"scorer: {scorer.name or 'none'} ({scorer.reason})"
        if self.asked.flags.not_looked_at:
            yield f"not looked at: {', '.join(self.asked.flags.not_looked_at)}"
        yield from (f"note: {note}" for note in self.notes)

    def _headline(self) -> str:
        setup = self.asked.setup
        gpu = setup.gpu.name if setup.gpu else "a GPU that cannot be seen"
        counts = {
            weight: sum(reason.weight is weight for reason in self.reasons) for weight in Weight
        }
        told = [
            f"{count} {weight}{_plural(weight) if count > 1 else ''}"
            for weight, count in counts.items()
            if count
        ]
        return (
            f"adaptive verification of {setup.target.name}, drafts by {setup.draft.method}, "
            f"K = {setup.draft.num_speculative_tokens}, on {gpu} ({self.asked.vllm.known})"
            + (f": {', '.join(told)}" if told else "")
        )


def check(question: Question, ways: Ways = Ways.AUTO) -> Answer:
    """Answer the question.

    Raises:
        CheckError: it is wrong.
    """
    asked = ask(question)
    found = _capabilities(asked, ways)
    judgement = judge(asked.setup, found[0] if found else None)
    source = found[1] if found else "nobody: the GPU is not known"
    return Answer(asked, judgement, source, tuple(_notes(asked.setup, judgement)))


def _capabilities(asked: Asked, ways: Ways) -> tuple[Capabilities, str] | None:
    if asked.setup.gpu is None:
        return None
    if ways is Ways.VLLM or (ways is Ways.AUTO and asked.vllm.here):
        from vllm_av.preflight.backends.asked import AskedCapabilities

        return AskedCapabilities(python=sys.executable), "the installed vLLM's own classes"
    from vllm_av.preflight.backends.table import TableCapabilities

    version = asked.setup.vllm
    return TableCapabilities(version), f"this package's table of vLLM {version}"


def _notes(setup: Setup, judgement: Judgement) -> Iterator[str]:
    block = setup.speculative.get(BLOCK)
    fixed = isinstance(block, dict) and block.get("on_unsupported") == "fixed_k"
    if fixed and judgement.verdict is Verdict.NO:
        yield (
            'on_unsupported is "fixed_k": vLLM starts all the same, with a fixed number of drafts '
            "and one warning"
        )


def _told(answer: LayerAnswer) -> str:
    layers = f"{describe(answer.group)} ({answer.group.where})"
    chosen = answer.chosen
    if chosen is None:
        return f"{layers}: none"
    note = f" ({chosen.note})" if chosen.note else ""
    return f"{layers}: {chosen.name}{note}, {_ability(chosen)}; {chosen.source}"


def _ability(candidate: Candidate) -> str:
    lens = "takes" if candidate.lens else "does not take"
    bound = "" if candidate.bound is None else f" up to {candidate.bound}"
    return f"{lens} trimmed lengths, graphs {candidate.graphs}{bound}"


def _layer(answer: LayerAnswer) -> dict[str, Any]:
    group = answer.group
    return {
        "kind": str(group.kind),
        "count": group.count,
        "where": group.where,
        "chosen": None if answer.chosen is None else _candidate(answer.chosen),
        "candidates": [_candidate(each) for each in answer.candidates],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "invalid": list(candidate.invalid),
        "trimmed_lengths": candidate.lens,
        "graphs": candidate.graphs,
        "bound": candidate.bound,
        "source": candidate.source,
        "note": candidate.note,
    }


def _plural(weight: Weight) -> str:
    return "s" if weight is not Weight.UNKNOWN else ""
