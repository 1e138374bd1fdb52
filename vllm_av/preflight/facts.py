"""What a question is made of: the target's layers, the drafter, the GPU, and what vLLM is told.

Everything is here in vLLM's own words, whether it comes from a command line and a ``config.json``
or from the config of a running engine, so that the same rules judge both.

Rule: frozen data; whoever makes it has checked it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class LayerKind(StrEnum):
    """What vLLM's selector, or the model's own code, tells layers apart by."""

    FULL = "full attention"
    SLIDING = "sliding window"
    CHUNKED = "chunked local attention"
    MLA = "MLA"
    MLA_SPARSE = "sparse MLA"
    INDEXER = "indexer of sparse MLA"
    MAMBA1 = "Mamba 1"
    MAMBA2 = "Mamba 2"
    SHORT_CONV = "short convolution"
    LINEAR = "linear attention"
    GDN = "gated delta net"
    OTHER = "layers of the model's own"


@dataclass(frozen=True)
class LayerGroup:
    """Layers of a target that ask for the same backend.

    Args:
        kind: of what kind.
        count: how many.
        head_size: per head; of MLA the latent's, as vLLM's selector is told it.
        num_heads: query heads of the whole model.
        num_kv_heads: key-value heads of the whole model; of MLA 1.
        where: what in the model's config says so.
        sink: attention sinks.
        mm_prefix: whether image tokens attend to each other (vLLM's ``use_mm_prefix``).
        backend: named by the model's own code, past the selector; None where the selector chooses.
        soft_cap, alibi, alibi_sqrt: whether logits are capped, and whether positions are biases,
            or roots of them.
        shared_kv: whether some of them read the keys and values of other layers.
    """

    kind: LayerKind
    count: int
    head_size: int
    num_heads: int
    num_kv_heads: int
    where: str
    sink: bool = False
    mm_prefix: bool = False
    backend: str | None = None
    soft_cap: bool = False
    alibi: bool = False
    alibi_sqrt: bool = False
    shared_kv: bool = False


@dataclass(frozen=True)
class ModelFacts:
    """A target, from its ``config.json``.

    Args:
        name: as the user wrote it.
        architecture: the first of ``architectures``.
        groups: its layers; empty where this package does not know the architecture.
        vocab_size: of the logits.
        dtype: in which it runs, such as ``bfloat16``.
        experts: how many routed experts a layer has, 0 without.
        config: the whole of ``config.json``.
        source: the file, or ``vLLM's config``.
        num_heads, num_kv_heads: of the config as a whole, as vLLM shares them out over ranks; 0
            where it says none.
        hidden_size: of the states that a drafter reads, 0 where it is not known.
    """

    name: str
    architecture: str
    groups: tuple[LayerGroup, ...]
    vocab_size: int
    dtype: str
    experts: int
    config: Mapping[str, Any]
    source: str
    num_heads: int = 0
    num_kv_heads: int = 0
    hidden_size: int = 0


@dataclass(frozen=True)
class DraftFacts:
    """The drafter.

    Args:
        method: as vLLM settles it.
        type_name: the row of :data:`vllm_av.drafters.TYPES`; None where none fits.
        architecture: of its checkpoint; None without one.
        num_speculative_tokens: K.
        has_head: whether the checkpoint holds a confidence head; None where its tensors cannot
            be listed.
        output_head: whether it holds an output head of its own; None as above.
        vocab_size, draft_vocab_size: of the target's tokens and of what it drafts from.
        source: the file, ``the target's own``, or ``vLLM's config``.
        groups: its layers, where they run over the target's trimmed batch, as those of EAGLE, MTP
            and a draft model do; empty for the others, and where they are not known.
        num_heads: query heads, 0 where the config says none.
        reads_layers: whether it reads hidden states of layers within the target.
        target_hidden_size: how wide those must be, 0 where it is not known.
    """

    method: str
    type_name: str | None
    architecture: str | None
    num_speculative_tokens: int
    has_head: bool | None
    output_head: bool | None
    vocab_size: int | None
    draft_vocab_size: int | None
    source: str
    groups: tuple[LayerGroup, ...] = ()
    num_heads: int = 0
    reads_layers: bool = False
    target_hidden_size: int = 0


@dataclass(frozen=True)
class Gpu:
    """A device.

    Args:
        name: as the user wrote it, or as the driver calls it.
        platform: ``cuda``, ``rocm``, ``xpu`` or ``cpu``.
        major, minor: compute capability; of ROCm the gfx number's, 0 and 0 for the CPU.
    """

    name: str
    platform: str
    major: int
    minor: int


@dataclass(frozen=True)
class Setup:
    """One question.

    Args:
        vllm: the version whose rules hold.
        patched: whether its adaptive-verification seams are those of this package's series, so
            that the selector prefers a backend that suffices.
        vllm_is_known: whether it is that version; else it is taken for it.
        target, draft: the models.
        gpu: None where it cannot be seen.
        speculative: the whole ``--speculative-config``, keys with underscores.
        attention_backend: as named for all layers, in vLLM's spelling; None for its own choice.
        backend_per_kind: of ``--attention-config``.
        cudagraph_mode: as vLLM would run it (``NONE``, ``PIECEWISE``, ``FULL``,
            ``FULL_DECODE_ONLY``, ``FULL_AND_PIECEWISE``), before adaptive verification has a say.
        max_capture_size: the largest captured batch, in tokens; 0 without graphs.
        max_num_seqs, max_num_batched_tokens: of the scheduler.
        tensor_parallel_size ... data_parallel_size: of the parallel config.
        executor: ``mp``, ``ray``, ``uni`` or ``external_launcher``.
        runner: ``v1`` or ``v2`` where the environment forces one.
        features: vLLM's other switches that matter and are on, by their flag's name with
            underscores, such as ``enable_lora``, ``enable_return_routed_experts``; the value is
            the setting.
        environment: variables that vLLM reads and that matter here.
        where: field, feature or variable -> the flag, key or file that it comes from.
        costs: what a cost table must say, as far as it is known; None where the file that the
            config names is not on this machine.
    """

    vllm: str
    patched: bool
    target: ModelFacts
    draft: DraftFacts
    gpu: Gpu | None
    speculative: Mapping[str, Any]
    attention_backend: str | None = None
    backend_per_kind: Mapping[str, str] = field(default_factory=dict)
    cudagraph_mode: str = "FULL_AND_PIECEWISE"
    max_capture_size: int = 512
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    data_parallel_size: int = 1
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    executor: str = "mp"
    runner: str | None = None
    features: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
    vllm_is_known: bool = True
    costs: Mapping[str, Any] | None = None

    @property
    def max_query_len(self) -> int:
        """K + 1: what verification of a whole block asks of a request, in tokens."""
        return self.draft.num_speculative_tokens + 1

    @property
    def replays(self) -> bool:
        """Whether verification replays graphs: a patched vLLM's on the CPU needs none."""
        return not (self.patched and self.gpu is not None and self.gpu.platform == "cpu")

    def place(self, name: str, default: str) -> str:
        """Where a field came from."""
        return self.where.get(name, default)
