"""What is asked about attention backends, and how an answer looks, whoever gives it.

Two give it: the tables of this package (``backends.table``), without importing anything heavy, and
the installed vLLM's own classes (``backends.asked``).

Rule: an answer says how it is known.
"""

from dataclasses import dataclass
from typing import Protocol

from vllm_av.preflight.facts import LayerGroup, Setup

ALWAYS, UNIFORM_BATCH, SINGLE, NEVER = (
    "ALWAYS",
    "UNIFORM_BATCH",
    "UNIFORM_SINGLE_TOKEN_DECODE",
    "NEVER",
)
"""vLLM's ``AttentionCGSupport``."""


@dataclass(frozen=True)
class Limit:
    """What the code of a backend refuses, or gets wrong, where vLLM's selector takes it.

    Args:
        why: in vLLM's words.
        source: a line of vLLM's source.
        trimming: whether only queries of several lengths meet it, so that the layers run without
            adaptive verification.
    """

    why: str
    source: str
    trimming: bool = False


@dataclass(frozen=True)
class Candidate:
    """One backend for one group of layers.

    Args:
        name: of ``AttentionBackendEnum`` or ``MambaAttentionBackendEnum``, or of the class where
            neither has it.
        invalid: why vLLM's selector leaves it out, in vLLM's words; empty where it does not.
        lens: whether the device's query lengths may differ from the host's
            (``supports_device_cpu_query_lens_mismatch``).
        graphs: ``AttentionCGSupport`` of its metadata builder.
        bound: ``get_varlen_cudagraph_max_query_len``, in tokens per request.
        source: a line of vLLM's source (``flash_attn.py:619``), or ``asked``.
        note: what the answer hangs on, such as ``FA2`` or ``XQA``.
        limits: what stands against it that the selector does not know, whoever was asked.
    """

    name: str
    invalid: tuple[str, ...]
    lens: bool
    graphs: str
    bound: int | None
    source: str
    note: str = ""
    limits: tuple[Limit, ...] = ()

    def replays(self, max_query_len: int) -> bool:
        """Whether its full graphs replay 1 to ``max_query_len`` tokens per request."""
        if self.graphs == ALWAYS:
            return True
        return self.graphs != NEVER and self.bound is not None and self.bound >= max_query_len

    def promises(self, max_query_len: int) -> bool:
        """Whether adaptive verification can run on it, as far as vLLM's selector knows."""
        return not self.invalid and self.lens and self.replays(max_query_len)

    def suffices(self, max_query_len: int) -> bool:
        """Whether adaptive verification can run on it."""
        return self.promises(max_query_len) and not self.limits


@dataclass(frozen=True)
class LayerAnswer:
    """What vLLM would do with one group of layers.

    Args:
        group: which.
        chosen: the backend that vLLM takes; None where it takes none.
        candidates: all that it considers, its first choice first; then those that would suffice if
            the user named them.
        without: what it takes with adaptive verification off; None where it takes none.
    """

    group: LayerGroup
    chosen: Candidate | None
    candidates: tuple[Candidate, ...]
    without: Candidate | None = None

    def first_that_suffices(self, max_query_len: int) -> Candidate | None:
        """For a fix."""
        return next((each for each in self.candidates if each.suffices(max_query_len)), None)


class Capabilities(Protocol):
    """Whoever answers."""

    def answer(self, setup: Setup, group: LayerGroup) -> LayerAnswer:
        """What vLLM would do with these layers; ``setup.gpu`` is known."""
        ...
