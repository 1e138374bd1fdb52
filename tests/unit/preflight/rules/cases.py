"""For each code of a reason, questions that give it and nothing else."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.unit.preflight.rules.checkpoints import CARRIED, published, write
from vllm_av.preflight.question import Question
from vllm_av.preflight.reasons import ReasonCode, Weight

FEW = ("--max-num-seqs", "32")
"""So few requests that neither graphs nor logits fall short."""


@dataclass(frozen=True)
class Case:
    """A question, and what is wrong with it.

    Args:
        codes: of the reasons, all of them.
        weight: of the reasons, or of each.
        args: beside the model and the drafter.
        spec: keys of the speculative config, in place of the usual ones where they are the same.
        target: its name in ``tests/configs``.
        changes: to its config.
        draft: the same; None for none.
        fits: whether the drafter is given the target's hidden size.
        installed: version and patch state of the vLLM here.
        here: the GPU of this machine.
        flashinfer: the source of the installed one's decode function; None where none is there.
    """

    name: str
    codes: tuple[ReasonCode, ...]
    weight: Weight | tuple[Weight, ...]
    args: tuple[str, ...] = FEW
    spec: Mapping[str, Any] = field(default_factory=dict)
    target: str = "llama-3.1-8b"
    changes: Mapping[str, Any] = field(default_factory=dict)
    draft: str | None = "llama-3-8b-eagle"
    fits: bool = True
    tensors: tuple[str, ...] | None = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu: str = "h100"
    installed: tuple[str, str] = ("0.33.0", "applied")
    here: str | None = None
    flashinfer: str | None = None

    @property
    def weights(self) -> list[Weight]:
        """One for each code."""
        if isinstance(self.weight, tuple):
            return list(self.weight)
        return [self.weight] * len(self.codes)

    def question(self, folder: Path) -> Question:
        """The question, its files below ``folder``."""
        spec: dict[str, Any] = {
            "method": "eagle",
            "num_speculative_tokens": 7,
            "enable_adaptive_verification": True,
            **self.spec,
        }
        if self.draft is not None:
            carried = CARRIED / self.draft
            spec["model"] = (
                str(carried)
                if carried.is_dir()
                else write(folder, self.draft, tensors=self.tensors, **self._size())
            )
        spec = {key: value for key, value in spec.items() if value is not None}
        model = write(folder, self.target, **self.changes)
        args = (model, "--speculative-config", json.dumps(spec), *self.args)
        return Question(args=args, gpu=self.gpu, environment=self.environment)

    def _size(self) -> dict[str, int]:
        """The target's hidden size, in heads of the drafter's own."""
        if not self.fits:
            return {}
        config = published(self.target) | self.changes
        size = config.get("text_config", config).get("hidden_size")
        return {} if size is None else {"hidden_size": size, "head_dim": 128}


C, R, U, K = ReasonCode, Weight.REFUSAL, Weight.UNKNOWN, Weight.CAUTION
_BLOCK = "adaptive_verification_config"
_LAYERWISE = json.dumps(
    {"kv_connector": "LMCacheConnectorV1", "kv_connector_extra_config": {"use_layerwise": True}}
)

CASES = (
    Case("V1", (C.RUNNER,), R, environment={"VLLM_USE_V2_MODEL_RUNNER": "0"}),
    Case("batch overlap", (C.RUNNER,), R, (*FEW, "--enable-dbo")),
    Case("micro-batches", (C.RUNNER,), R, (*FEW, "--ubatch-size", "2")),
    Case("another vocabulary", (C.RUNNER,), R, spec={"use_heterogeneous_vocab": True}),
    Case("eager", (C.GRAPHS,), R, (*FEW, "--enforce-eager")),
    Case("level 0", (C.GRAPHS,), R, (*FEW, "-O0")),
    Case("level 1", (C.GRAPHS,), R, (*FEW, "-O", "1")),
    Case("piecewise", (C.GRAPHS,), R, (*FEW, "-cc.cudagraph_mode=PIECEWISE")),
    Case("eager and none", (C.GRAPHS,), R, (*FEW, "-O0", "--enforce-eager", "-cc.mode=1")),
    Case(
        "layerwise connector",
        (C.GRAPHS,),
        R,
        (
            *FEW,
            "--kv-transfer-config",
            _LAYERWISE,
        ),
    ),
    Case("three ranks", (C.PARALLEL,), R, (*FEW, "-tp", "3")),
    Case(
        "a drafter's ranks",
        (C.PARALLEL,),
        R,
        (*FEW, "-tp", "2"),
        spec={"draft_tensor_parallel_size": 4},
    ),
    Case(
        "fewer ranks than heads",
        (C.PARALLEL,),
        R,
        (*FEW, "-tp", "8", "-dcp", "2"),
    ),
    Case(
        "a third of the ranks",
        (C.PARALLEL,),
        R,
        (*FEW, "-tp=8", "-dcp=3"),
        target="qwen3-30b-a3b",
    ),
    Case("two stages", (C.PIPELINE,), R, (*FEW, "-pp", "2")),
    Case(
        "torchrun",
        (C.RUNNER, C.PIPELINE),
        R,
        (*FEW, "-pp=2", "--distributed-executor-backend", "external_launcher"),
    ),
    Case("LoRA", (C.LORA,), R, (*FEW, "--enable-lora")),
    Case("routed experts", (C.ROUTED_EXPERTS,), R, (*FEW, "--enable-return-routed-experts")),
    Case(
        "routed experts in the config",
        (C.ROUTED_EXPERTS,),
        R,
        (*FEW, "--aux-output-config.enable_return_routed_experts=true"),
    ),
    Case("sampling mask", (C.SAMPLING_MASK,), R, (*FEW, "--return_sampling_mask")),
    Case(
        "sharded sampling",
        (C.SHARDED_SAMPLING,),
        R,
        (*FEW, "--enable-batch-sharded-sampling"),
        installed=("0.32.0", "applied"),
    ),
    Case(
        "specialised decode",
        (C.SPECIALIZED_DECODE,),
        R,
        (*FEW, "--additional-config.decode_backend=latency_specialized"),
        target="kimi-linear-48b-a3b",
        # Its other layers, gated delta nets, would be refused too.
        changes={
            "architectures": ["KimiK3ForConditionalGeneration"],
            "linear_attn_config": {"full_attn_layers": [*range(1, 28)], "kda_layers": []},
        },
        gpu="gb300",
    ),
    Case("local argmax", (C.LOCAL_ARGMAX,), R, spec={"use_local_argmax_reduction": True}),
    Case(
        "local argmax without a head",
        (C.LOCAL_ARGMAX,),
        R,
        spec={"method": "dspark", "use_local_argmax_reduction": True},
        target="qwen3-8b",
        draft="qwen3-8b-dspark-block7",
    ),
    Case(
        "local argmax, tensors unknown",
        (C.LOCAL_ARGMAX,),
        U,
        spec={"method": "dspark", "use_local_argmax_reduction": True},
        target="qwen3-8b",
        draft="qwen3-8b-dspark-block7",
        tensors=None,
    ),
    Case("n-gram", (C.DRAFTER,), R, spec={"method": "ngram"}, draft=None),
    Case("P-EAGLE", (C.DRAFTER,), R, spec={"parallel_drafting": True}),
    Case(
        "XPress",
        (C.DRAFTER,),
        R,
        spec={"method": "dflash"},
        draft="qwen3-8b-xpress",
        target="qwen3-8b",
    ),
    Case(
        "a head that is not there",
        (C.SCORER,),
        R,
        spec={"method": "dspark", _BLOCK: {"scorer": "confidence_head"}},
        target="qwen3-8b",
        draft="qwen3-8b-dspark-block7",
    ),
    Case(
        "a head that cannot be seen",
        (C.SCORER,),
        U,
        spec={"method": "dspark", _BLOCK: {"scorer": "confidence_head"}},
        target="qwen3-8b",
        draft="qwen3-8b-dspark-block7",
        tensors=None,
    ),
    Case(
        "a target that lends no states",
        (C.TARGET,),
        R,
        spec={"method": "eagle3"},
        target="gemma-2-9b",
        draft="llama-3.1-8b-eagle3",
        tensors=("lm_head.weight",),
    ),
    Case("a drafter of another target", (C.TARGET,), R, target="qwen2.5-7b", fits=False),
    Case(
        "no output head",
        (C.DRAFT_VOCABULARY,),
        R,
        spec={"method": "eagle3"},
        draft="llama-3.1-8b-eagle3",
    ),
    Case(
        "an unfit backend",
        (C.BACKEND,),
        R,
        (*FEW, "--attention-backend", "FLASHMLA"),
    ),
    Case("narrow graphs", (C.VARLEN,), R, (*FEW, "--attention-backend", "flash_attn"), gpu="sm80"),
    Case("host's lengths", (C.LENS, C.VARLEN), R, (*FEW, "-ac.backend=FLASHINFER"), gpu="sm120"),
    Case("the drafter's own backend", (C.LENS,), R, spec={"attention_backend": "FLASHINFER"}),
    Case(
        "a backend for the target alone",
        (C.BACKEND,),
        R,
        (*FEW, "--attention-backend", "FLASHINFER_MLA"),
        target="deepseek-v3",
        gpu="b200",
    ),
    Case(
        "an FP8 cache on an older GPU",
        (C.BACKEND, C.BACKEND, C.FAST_PATH),
        (R, R, K),
        (*FEW, "--kv-cache-dtype", "fp8"),
        gpu="a100",
    ),
    Case(
        "capped logits",
        (C.BACKEND, C.BACKEND),
        R,
        (*FEW, "--attention-backend", "FLEX_ATTENTION"),
        target="gemma-2-9b",
    ),
    Case(
        "keys and values of other layers",
        (C.BACKEND, C.BACKEND),
        R,
        (*FEW, "--attention-backend", "FLEX_ATTENTION"),
        target="gemma-3n-e2b",
    ),
    Case("ALiBi", (C.BACKEND,), R, target="falcon-7b", changes={"alibi": True}),
    Case(
        "context parallelism of MLA",
        (C.VARLEN, C.VARLEN),
        R,
        (*FEW, "-tp", "8", "-dcp", "2"),
        spec={"method": "mtp", "num_speculative_tokens": 1},
        target="deepseek-v3",
        draft=None,
        gpu="b200",
    ),
    Case(
        "an old FlashInfer",
        (C.FLASHINFER,),
        R,
        (*FEW, "--attention-backend", "FLASHINFER"),
        gpu="b200",
        flashinfer="def trtllm_batch_decode_with_kv_cache(query, *, max_seq_len): ...",
    ),
    Case(
        "a FlashInfer that cannot be read",
        (C.FLASHINFER,),
        U,
        (*FEW, "--attention-backend", "FLASHINFER"),
        gpu="b200",
        flashinfer="def (",
    ),
    Case(
        "no FlashInfer",
        (C.FLASHINFER,),
        R,
        (*FEW, "--attention-backend", "FLASHINFER"),
        gpu="auto",
        here="b200",
    ),
    Case(
        "a sparse indexer",
        (C.VARLEN, C.FAST_PATH),
        (R, K),
        spec={"num_speculative_tokens": 3},
        target="deepseek-v3.2",
    ),
    Case("a slower backend", (C.FAST_PATH,), K, gpu="a100"),
    Case("no GPU", (C.GPU,), U, gpu="auto"),
    Case("an unknown model", (C.MODEL,), U, changes={"architectures": ["UnheardOfForCausalLM"]}),
    Case("Ray", (C.ELSEWHERE,), U, (*FEW, "--distributed-executor-backend", "ray"), gpu="auto"),
    Case("another vLLM", (C.VERSION,), U, installed=("0.34.1", "unsupported")),
    Case("not patched", (C.VERSION,), K, installed=("0.33.0", "pristine")),
    Case("many requests", (C.CAPTURE,), K, ("--max-num-seqs", "128")),
    Case(
        "few listed graphs",
        (C.CAPTURE,),
        K,
        ("--max-num-seqs", "128", "--cudagraph-capture-sizes", "8", "64", "512"),
    ),
    Case("graphs up to", (C.CAPTURE,), K, (*FEW, "-cc.max_cudagraph_capture_size=128")),
    Case(
        "a large vocabulary",
        (C.LOGITS,),
        K,
        ("--max-num-seqs", "512", "--max-cudagraph-capture-size", "4096"),
    ),
    Case(
        "experts",
        (C.MOE,),
        K,
        target="qwen3-30b-a3b",
        environment={"VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS": "0"},
    ),
    Case("FULL", (C.GRAPH_MODE,), K, (*FEW, "-cc.cudagraph_mode=FULL")),
    Case("uncompiled", (C.GRAPH_MODE,), K, (*FEW, "-cc", '{"mode": 0, "cudagraph_mode": "FULL"}')),
)
"""Each gives its codes, and no other."""
