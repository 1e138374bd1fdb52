"""What an answer is made of: reasons, each with a stable code and a fix, and one verdict.

Rule: a rule returns reasons, never a bool; all that hold are told, not the first.
"""

import json
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from vllm_av.errors import Code


class Weight(StrEnum):
    """What a reason does to the verdict."""

    REFUSAL = "refusal"
    """Adaptive verification cannot run so."""
    UNKNOWN = "unknown"
    """Whether it can is decided by something that cannot be seen here."""
    CAUTION = "caution"
    """It runs, and costs or changes something that the user did not ask for."""


class ReasonCode(StrEnum):
    """Stable codes, one meaning each; retired, never reused."""

    RUNNER = "AV-CHECK-RUNNER"
    """vLLM's V1 model runner, or a feature that only it has."""
    GRAPHS = "AV-CHECK-GRAPHS"
    """The graph mode has no full CUDA graphs."""
    PARALLEL = "AV-CHECK-PARALLEL"
    """Heads or ranks do not divide as vLLM needs it; it refuses that in any case."""
    PIPELINE = "AV-CHECK-PIPELINE"
    """Pipeline parallelism."""
    LORA = "AV-CHECK-LORA"
    """LoRA adapters."""
    ROUTED_EXPERTS = "AV-CHECK-ROUTED-EXPERTS"
    """Routed experts are to be returned."""
    SAMPLING_MASK = "AV-CHECK-SAMPLING-MASK"
    """Sampling masks are to be returned for a replay."""
    SHARDED_SAMPLING = "AV-CHECK-SHARDED-SAMPLING"
    """Sampling is sharded over the ranks by the host's query lengths."""
    SPECIALIZED_DECODE = "AV-CHECK-SPECIALIZED-DECODE"
    """A model's own decode loop, which serves whole blocks of drafts, is asked for."""
    LOCAL_ARGMAX = "AV-CHECK-LOCAL-ARGMAX"
    """``use_local_argmax_reduction`` spares the draft logits."""
    DRAFTER = "AV-CHECK-DRAFTER"
    """The drafter makes no estimate of acceptance, or vLLM does not offer it."""
    TARGET = "AV-CHECK-TARGET"
    """The target does not hand the drafter the hidden states that it reads."""
    SCORER = "AV-CHECK-SCORER"
    """The scorer needs what this drafter does not have."""
    DRAFT_VOCABULARY = "AV-CHECK-DRAFT-VOCABULARY"
    """A drafter of a reduced vocabulary without an output head of its own."""
    BACKEND = "AV-CHECK-BACKEND"
    """No attention backend, or not the one that is named, takes these layers."""
    LENS = "AV-CHECK-LENS"
    """The attention backend plans by the host's query lengths, which trimming changes."""
    VARLEN = "AV-CHECK-VARLEN"
    """The attention backend's full graphs do not replay 1 to K+1 tokens per request."""
    FLASHINFER = "AV-CHECK-FLASHINFER"
    """FlashInfer is needed, and is missing or too old for queries of several lengths."""
    GPU = "AV-CHECK-GPU"
    """No GPU is visible here, and none was named."""
    MODEL = "AV-CHECK-MODEL"
    """This package does not know which attention layers a model of this architecture has."""
    ELSEWHERE = "AV-CHECK-ELSEWHERE"
    """The workers run where this process cannot look; each of them checks again."""
    VERSION = "AV-CHECK-VERSION"
    """This vLLM is none that the tables were made for, or it is not patched."""
    CAPTURE = "AV-CHECK-CAPTURE"
    """Decode batches outgrow the captured graphs."""
    LOGITS = "AV-CHECK-LOGITS"
    """Logits are made in chunks below what a full batch would verify."""
    MOE = "AV-CHECK-MOE"
    """Rows of the cost tables are to be profiled as padding, which MoE layers skip."""
    GRAPH_MODE = "AV-CHECK-GRAPH-MODE"
    """vLLM will run another graph mode than the one asked for."""
    FAST_PATH = "AV-CHECK-FAST-PATH"
    """A faster way, or a faster attention backend, is left because of adaptive verification."""


class Verdict(StrEnum):
    """The answer in a word."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """Of a question, what a fix changes."""

    FLAG = "flag"
    SPECULATIVE = "speculative config"
    ENVIRONMENT = "environment"


@dataclass(frozen=True)
class Change:
    """One change to a question.

    Args:
        part: where.
        name: of the flag, with dashes, a point before a key of a JSON flag; of the key; of the
            variable.
        value: what it is to be; None where it is to go.
    """

    part: Part
    name: str
    value: Any = None

    def __str__(self) -> str:
        value = json.dumps(self.value)
        if self.part is Part.SPECULATIVE:
            return f'remove "{self.name}"' if self.value is None else f'set "{self.name}": {value}'
        value = self.value if isinstance(self.value, str) else value
        if self.part is Part.ENVIRONMENT:
            return f"unset {self.name}" if self.value is None else f"set {self.name}={value}"
        if self.value is None:
            return f"remove --{self.name}"
        return f"write --{self.name} {shlex.quote(value)}"


@dataclass(frozen=True)
class Reason:
    """One reason.

    Args:
        code: what kind of reason.
        weight: what it does to the verdict.
        asked: what the config asks for.
        found: what stands against it.
        where: the flag, key or file that it comes from, as the user wrote it.
        fix: what would pass; None where nothing here does.
        source: how it is known: a line of vLLM's source in the table, or ``asked`` of the
            installed vLLM's own classes; None where the config itself says it.
        changes: what ``fix`` changes, for programs; empty where it is not to be done by a program.
    """

    code: ReasonCode | Code
    weight: Weight
    asked: str
    found: str
    where: str
    fix: str | None
    source: str | None = None
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        fix = f"; {self.fix}" if self.fix else ""
        return f"{self.weight}: [{self.code}] {self.asked} ({self.where}): {self.found}{fix}"

    def as_dict(self) -> dict[str, Any]:
        """The same, for ``--json``."""
        return asdict(self)


def verdict(reasons: Iterable[Reason]) -> Verdict:
    """No where anything refuses, else unknown where anything is, else yes."""
    weights = {reason.weight for reason in reasons}
    if Weight.REFUSAL in weights:
        return Verdict.NO
    return Verdict.UNKNOWN if Weight.UNKNOWN in weights else Verdict.YES
