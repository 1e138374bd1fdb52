"""What the check found, for people and for programs.

Rule: both say the same.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from vllm_av.config.text import ascii_line, printable
from vllm_av.preflight.backends.flashinfer import LENGTHS, FlashInfer, decode_kernel
from vllm_av.preflight.capabilities import ALWAYS, NEVER, Candidate, LayerAnswer
from vllm_av.preflight.facts import Gpu
from vllm_av.preflight.question import Asked
from vllm_av.preflight.reasons import Reason, Verdict, Weight
from vllm_av.preflight.rules import Judgement
from vllm_av.preflight.rules.groups import describe

_LONGEST = 4000  # characters of a line
_NAME = 60


@dataclass(frozen=True)
class Answer:
    """What the check found.

    Args:
        asked: the question, as it was understood.
        judgement: the reasons, the layers, the scorer.
        source: who was asked about attention backends, for people.
        flashinfer: the one that vLLM would use; None where that is not known.
        notes: what else to know.
    """

    asked: Asked
    judgement: Judgement
    source: str
    flashinfer: FlashInfer | None
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
            "flashinfer": None if self.flashinfer is None else asdict(self.flashinfer),
            "not_looked_at": list(self.asked.flags.not_looked_at),
            "notes": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        """For people: ASCII, whatever the files and the flags hold."""
        return (ascii_line(line, _LONGEST) for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.verdict}: {self._headline()}"
        yield from (f"  {reason}" for reason in self.reasons)
        if self.judgement.layers:
            yield f"attention backends, by {self.source}"
            yield from (f"  {_told(answer)}" for answer in self.judgement.layers)
        if self.flashinfer is not None and self.asked.setup.gpu is not None:
            yield f"FlashInfer: {_installed(self.flashinfer, self.asked.setup.gpu)}"
        scorer = self.judgement.scorer
        name = scorer.name or ("none" if scorer.known else "not known here")
        yield f"scorer: {printable(name, _NAME)} ({scorer.reason})"
        if self.asked.flags.not_looked_at:
            flags = (printable(each, _NAME) for each in self.asked.flags.not_looked_at)
            yield f"not looked at: {', '.join(flags)}"
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
            f"adaptive verification of {printable(setup.target.name)}, drafts by "
            f"{setup.draft.method}, K = {setup.draft.num_speculative_tokens}, on {gpu} "
            f"({self.asked.vllm.known})" + (f": {', '.join(told)}" if told else "")
        )


def _installed(found: FlashInfer, gpu: Gpu) -> str:
    if found.version is None:
        return "not installed"
    kernel = decode_kernel(gpu) or "no kernel"
    lengths = {
        True: f"takes {' and '.join(LENGTHS)}",
        False: f"does not take {' and '.join(LENGTHS)}",
        None: "its source cannot be read",
    }[found.takes_lengths]
    place = f" ({found.source})" if found.source else ""
    return f"{found.version} here, {lengths}{place}; on {gpu.name} it decodes by {kernel}"


def _told(answer: LayerAnswer) -> str:
    layers = f"{describe(answer.group)} ({answer.group.where})"
    chosen = answer.chosen
    if chosen is None:
        return f"{layers}: none"
    note = f" ({chosen.note})" if chosen.note else ""
    return f"{layers}: {chosen.name}{note}, {_ability(chosen)}; {chosen.source}"


def _ability(candidate: Candidate) -> str:
    lens = "takes" if candidate.lens else "does not take"
    graphs = candidate.graphs
    if candidate.bound is not None and graphs not in (ALWAYS, NEVER):
        graphs = f"for 1 to {candidate.bound} tokens per request"
    return f"{lens} trimmed lengths, graphs {graphs}"


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
        "limits": [each.why for each in candidate.limits],
        "trimmed_lengths": candidate.lens,
        "graphs": candidate.graphs,
        "bound": candidate.bound,
        "source": candidate.source,
        "note": candidate.note,
    }


def _plural(weight: Weight) -> str:
    return "s" if weight is not Weight.UNKNOWN else ""
