"""Which attention backend the installed vLLM would take on this machine for the usual layers, and
whether adaptive verification could run on it. Nothing of vLLM is imported.

A model's own layers can be told only from its config: ``vllm-av check``.

Rule: the answers are those of the check (:mod:`vllm_av.preflight.backends`), for layers of the
most usual sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_av.doctor.dists import Installed
from vllm_av.doctor.findings import VLLM_DISTS, is_cpu_build
from vllm_av.doctor.patches import Patches
from vllm_av.machine import Machine
from vllm_av.preflight.backends.gpus import of_devices
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.capabilities import NEVER, Candidate
from vllm_av.preflight.facts import (
    DraftFacts,
    Gpu,
    LayerGroup,
    LayerKind,
    ModelFacts,
    Setup,
)
from vllm_av.preflight.installed import is_patched

K = 7
"""Draft tokens, for backends whose graphs have a bound."""

_CONFIG = {
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
    "index_topk": 2048,
}
"""Of DeepSeek V3.2's ``config.json``: what MLA's backends look at."""

USUAL = (
    LayerGroup(LayerKind.FULL, 1, 128, 32, 8, "as Llama 3 has them"),
    LayerGroup(LayerKind.MLA, 1, 576, 128, 1, "as DeepSeek V3 has them"),
    LayerGroup(LayerKind.MLA_SPARSE, 1, 576, 128, 1, "as DeepSeek V3.2 has them"),
)


@dataclass(frozen=True)
class Attention:
    """The backend of one kind of layers.

    Args:
        layers: of which kind.
        backend: None where vLLM takes none.
        suffices: whether adaptive verification can run on it.
        why: what it lacks, or what the answer hangs on.
        named: the first backend that would do, where this one does not.
        source: how it is known.
    """

    layers: str
    backend: str | None
    suffices: bool
    why: str
    named: str | None
    source: str

    def __str__(self) -> str:
        verdict = "can" if self.suffices else "cannot"
        why = f" ({self.why})" if self.why else ""
        fix = f"; --attention-backend {self.named} could" if self.named else ""
        return (
            f"{self.layers}: {self.backend or 'no backend'}{why}: adaptive verification {verdict} "
            f"run on it{fix}"
        )


def gpu_of(machine: Machine, installed: Installed, environ: Mapping[str, str]) -> Gpu | None:
    """What vLLM would run on; None where that cannot be told."""
    if is_cpu_build(installed, environ):
        return Gpu("cpu", "cpu", 0, 0)
    return of_devices(machine.gpus, environ)


def attention(gpu: Gpu | None, installed: Installed, patches: Patches) -> tuple[Attention, ...]:
    """The backends; none where there is no vLLM, or where its GPU cannot be told."""
    version = next((v for name in VLLM_DISTS if (v := installed.version(name))), None)
    if gpu is None or version is None:
        return ()
    version = version.partition("+")[0]
    setup = _setup(version, gpu, patched=is_patched(patches.state))
    known = TableCapabilities(version)
    found = []
    for group in USUAL:
        answer = known.answer(setup, group)
        chosen = answer.chosen
        suffices = chosen is not None and (
            chosen.suffices(setup.max_query_len) if setup.replays else chosen.lens
        )
        other = None if suffices else answer.first_that_suffices(setup.max_query_len)
        found.append(
            Attention(
                group.kind,
                chosen.name if chosen else None,
                suffices,
                _why(chosen, setup.max_query_len, suffices=suffices),
                other.name if other else None,
                chosen.source if chosen else "",
            )
        )
    return tuple(found)


def _why(chosen: Candidate | None, width: int, *, suffices: bool) -> str:
    if chosen is None:
        return ""
    if not chosen.lens:
        return "plans by the host's query lengths"
    if not suffices and chosen.graphs == NEVER:
        return "no CUDA graphs"
    if not suffices:
        return f"full graphs not of 1 to {width} tokens a request"
    return chosen.note


def _setup(version: str, gpu: Gpu, *, patched: bool) -> Setup:
    target = ModelFacts("", "LlamaForCausalLM", USUAL, 128256, "bfloat16", 0, _CONFIG, "")
    draft = DraftFacts("eagle3", None, None, K, False, True, 128256, None, "")
    return Setup(version, patched, target, draft, gpu, {})
