"""Command lines that vLLM and the check are both asked about, and what is to come of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.contract.checkpoints import DRAFTERS
from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.reasons import ReasonCode as R

V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}


@dataclass(frozen=True)
class Asked:
    """One.

    Args:
        name: of the case.
        target: of :data:`tests.contract.checkpoints.CONFIGS`.
        flags: beside the model and the speculative config.
        method: vLLM's; None leaves it out.
        draft: of the same table; None takes SmolLM2's of that method.
        more: keys of the speculative config; None takes one out.
        refused: every reason that stands in the config itself.
        worded: what vLLM's words say, where it calls the same by another name.
        versions: where that is so; the others start.
        environ: variables.
    """

    name: str
    flags: tuple[str, ...] = ()
    target: str = "smollm2"
    method: str | None = "eagle3"
    draft: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    refused: frozenset[R] = frozenset()
    worded: frozenset[R] = frozenset()
    versions: tuple[str, ...] = SUPPORTED
    environ: Mapping[str, str] = field(default_factory=dict)

    def expected(self, version: str, gpu: str) -> frozenset[R]:
        """The reasons of that release on that GPU."""
        if version not in self.versions:
            return frozenset()
        # The series lets the CPU do without graphs, and vLLM has no two batches at once there.
        none = {R.GRAPHS} | ({R.RUNNER} if "--enable-dbo" in self.flags else set())
        return self.refused - none if gpu == "cpu" else self.refused

    def argv(self, checkpoints: Mapping[str, Path]) -> tuple[str, ...]:
        """What follows ``vllm serve``."""
        speculative: dict[str, Any] = {
            "num_speculative_tokens": 5,
            "enable_adaptive_verification": True,
        }
        if self.method is not None:
            speculative["method"] = self.method
        draft = self.draft or DRAFTERS.get(self.method or "")
        if draft is not None:
            speculative["model"] = str(checkpoints[draft])
        speculative |= self.more
        asked = {key: value for key, value in speculative.items() if value is not None}
        model = str(checkpoints[self.target])
        return ("--model", model, "--speculative-config", json.dumps(asked), *self.flags)


def _refused(*codes: R) -> frozenset[R]:
    return frozenset(codes)


_MASK = ("--return-sampling-mask", "--logprobs-mode", "processed_logprobs")
_LLAMA: dict[str, Any] = {"target": "llama", "draft": "llama-eagle3"}
_MIXTRAL: dict[str, Any] = {"target": "mixtral", "method": "draft_model", "draft": "mixtral-draft"}
_BFLOAT16 = ("--kv-cache-dtype", "bfloat16")
_SHORT = ("--max-model-len", "2048")
"""Of MLA, which a CPU without AMX prefills whole, in batches of that length."""
_GEMMA: dict[str, Any] = {"target": "gemma-4-31b", "method": "eagle"}
_GPT_OSS: dict[str, Any] = {"target": "gpt-oss-120b", "method": "eagle"}

ASKED = (
    *(Asked(method, method=method) for method in DRAFTERS),
    Asked("method left out", method=None, draft="smollm2-dspark"),
    Asked("graphs none", ("-cc.cudagraph_mode", "NONE"), refused=_refused(R.GRAPHS)),
    Asked("graphs piecewise", ("-cc.cudagraph_mode=PIECEWISE",), refused=_refused(R.GRAPHS)),
    Asked(
        "graphs piecewise in JSON",
        ("--compilation-config", '{"cudagraph_mode": "PIECEWISE"}'),
        refused=_refused(R.GRAPHS),
    ),
    Asked("graphs full", ("-cc.cudagraph_mode", "FULL")),
    Asked("graphs full decode only", ("-cc.cudagraph_mode", "FULL_DECODE_ONLY")),
    Asked("eager", ("--enforce-eager",), refused=_refused(R.GRAPHS)),
    Asked("O0", ("-O0",), refused=_refused(R.GRAPHS)),
    Asked("O1", ("-O1",), refused=_refused(R.GRAPHS)),
    Asked("O2", ("-O2",)),
    Asked("O3", ("-O3",)),
    Asked("compilation mode 0", ("-cc.mode", "0")),
    Asked("lora", ("--enable-lora",), refused=_refused(R.LORA)),
    Asked("tensor parallel", ("-tp", "2"), **_LLAMA),
    Asked(
        "sampling sharded",
        ("-tp", "2", "--enable-batch-sharded-sampling"),
        refused=_refused(R.SHARDED_SAMPLING),
        versions=("0.32.0",),
        **_LLAMA,
    ),
    Asked("pipeline parallel", ("-pp", "2"), refused=_refused(R.PIPELINE), **_LLAMA),
    Asked("three ranks", ("-tp", "3"), refused=_refused(R.PARALLEL), **_LLAMA),
    Asked("nine heads", ("-tp", "2"), refused=_refused(R.PARALLEL)),
    Asked(
        "a drafter's ranks",
        ("-tp", "4"),
        more={"draft_tensor_parallel_size": 2},
        refused=_refused(R.PARALLEL),
        **_LLAMA,
    ),
    Asked(
        "a context over the heads",
        ("-tp", "8", "-dcp", "2"),
        refused=_refused(R.PARALLEL),
        **_LLAMA,
    ),
    Asked(
        "a context over a third",
        ("-tp", "4", "-dcp", "3"),
        refused=_refused(R.PARALLEL),
        **_LLAMA,
    ),
    Asked("data parallel", ("-dp", "2"), **_LLAMA),
    Asked("experts", **_MIXTRAL),
    Asked(
        "routed experts",
        ("--enable-return-routed-experts",),
        refused=_refused(R.ROUTED_EXPERTS),
        **_MIXTRAL,
    ),
    Asked("sampling mask", _MASK, refused=_refused(R.SAMPLING_MASK)),
    *(
        Asked(
            f"local argmax, {method}",
            method=method,
            more={"use_local_argmax_reduction": True},
            refused=_refused(R.LOCAL_ARGMAX),
        )
        for method in ("eagle3", "dflash", "draft_model")
    ),
    # It has a confidence head, which vLLM sees only in the weights.
    Asked("local argmax, dspark", method="dspark", more={"use_local_argmax_reduction": True}),
    Asked("V1", environ=V1, refused=_refused(R.RUNNER)),
    Asked("V2", environ={"VLLM_USE_V2_MODEL_RUNNER": "1"}),
    Asked(
        "parallel drafting",
        more={"parallel_drafting": True},
        refused=_refused(R.DRAFTER),
        worded=_refused(R.RUNNER),
    ),
    Asked("two batches at once", ("--enable-dbo",), refused=_refused(R.RUNNER)),
    Asked("no estimate", method="ngram", refused=_refused(R.DRAFTER)),
    Asked("few requests", ("--max-num-seqs", "64")),
    Asked("few tokens", ("--max-num-batched-tokens=4096",)),
    Asked("large graphs", ("--max-cudagraph-capture-size", "2048")),
    Asked("listed graphs", ("--cudagraph-capture-sizes", "1", "2", "4")),
    Asked("synchronous", ("--no-async-scheduling",)),
    Asked("half precision", ("--dtype", "float16")),
    Asked("FP8 cache", ("--kv-cache-dtype", "fp8")),
    Asked("a backend by name", ("--attention-backend", "TRITON_ATTN")),
    Asked("heads of two sizes", **_GEMMA),
    Asked("heads of two sizes, FP8 cache", ("--kv-cache-dtype", "fp8"), **_GEMMA),
    Asked("heads of two sizes, a version", ("-ac.flash_attn_version", "2"), **_GEMMA),
    Asked("heads of two sizes, a backend", ("--attention-backend", "FLASHINFER"), **_GEMMA),
    Asked("graphs of the model's own", **_GPT_OSS),
    Asked("graphs up to", ("--max-cudagraph-capture-size", "256"), **_GPT_OSS),
    Asked("graphs listed", ("--cudagraph-capture-sizes", "1", "2", "4"), **_GPT_OSS),
    Asked("cache of the model's own", _SHORT, target="glm-5", method="eagle"),
    Asked("cache by name", (*_SHORT, *_BFLOAT16), target="glm-5", method="eagle"),
    Asked("cache in bfloat16", (*_SHORT, *_BFLOAT16), target="deepseek-v3.2", method="eagle"),
    Asked("underscores", ("--enforce_eager",), refused=_refused(R.GRAPHS)),
    Asked(
        "two faults",
        ("--enable-lora", "--enforce-eager"),
        refused=_refused(R.LORA, R.GRAPHS),
    ),
    Asked(
        "five faults",
        ("--enable-lora", "--enforce-eager", "-pp", "2", *_MASK),
        more={"use_local_argmax_reduction": True},
        refused=_refused(R.LORA, R.GRAPHS, R.PIPELINE, R.SAMPLING_MASK, R.LOCAL_ARGMAX),
        **_LLAMA,
    ),
    Asked(
        "six faults",
        ("--enable-lora", "-O0", "-pp", "2", "--enable-return-routed-experts"),
        more={"use_local_argmax_reduction": True},
        environ=V1,
        refused=_refused(R.LORA, R.GRAPHS, R.PIPELINE, R.ROUTED_EXPERTS, R.LOCAL_ARGMAX, R.RUNNER),
        **_MIXTRAL,
    ),
)
IN_THE_CONFIG = frozenset(
    {
        R.RUNNER,
        R.GRAPHS,
        R.PARALLEL,
        R.PIPELINE,
        R.LORA,
        R.ROUTED_EXPERTS,
        R.SAMPLING_MASK,
        R.LOCAL_ARGMAX,
        R.DRAFTER,
        R.SHARDED_SAMPLING,
    }
)
"""What vLLM can refuse without looking at a layer."""
