"""What vLLM says where it refuses adaptive verification, in its own words.

These are the words that people find in their logs and quote in public threads.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.reasons import ReasonCode as R


@dataclass(frozen=True)
class Quote:
    """One.

    Args:
        code: what the check calls it.
        words: of the message, without what differs from case to case.
        file, function: where vLLM raises it.
        versions: the releases that do.
        late: whether vLLM says it when the target's weights are loaded, not before.
    """

    code: R
    words: str
    file: str
    function: str
    versions: tuple[str, ...] = SUPPORTED
    late: bool = False


_CONFIG = "config/vllm.py"
_MODEL, _PARALLEL = "config/model.py", "config/parallel.py"
_MANAGER = "v1/worker/gpu/spec_decode/adaptive_verification.py"

QUOTES = (
    Quote(
        R.RUNNER,
        "adaptive draft verification",
        _CONFIG,
        "_get_v1_model_runner_unsupported_features",
    ),
    *(
        Quote(R.PARALLEL, words, _MODEL, "verify_with_parallel_config")
        for words in (
            " must be divisible by tensor parallel size ",
            "Decode context parallelism for GQA/MQA requires `--tensor-parallel-size` ",
            " exceeds the maximum supported value ",
            "The model's number of query heads per KV head ",
        )
    ),
    Quote(R.PARALLEL, " must be divisible by dcp_size=", _PARALLEL, "_validate_parallel_config"),
    Quote(
        R.PARALLEL,
        "cannot be other value than 1 or target model tensor_parallel_size",
        "config/speculative.py",
        "_verify_and_get_draft_tp",
    ),
    Quote(
        R.SHARDED_SAMPLING,
        "it does not yet work with adaptive verification",
        _CONFIG,
        "_validate_batch_sharded_sampling",
        versions=("0.32.0",),
    ),
    Quote(
        R.LORA,
        "Adaptive verification is not currently compatible with LoRA",
        _CONFIG,
        "_validate_adaptive_verification",
    ),
    Quote(
        R.GRAPHS,
        "Adaptive verification requires full CUDA graphs. Use cudagraph mode FULL, "
        "FULL_DECODE_ONLY, or FULL_AND_PIECEWISE, or disable adaptive verification.",
        _CONFIG,
        "_validate_adaptive_verification",
    ),
    Quote(
        R.PIPELINE,
        "Adaptive verification is not currently compatible with pipeline parallelism",
        _CONFIG,
        "_validate_adaptive_verification",
    ),
    Quote(
        R.ROUTED_EXPERTS,
        "--enable-return-routed-experts is incompatible with adaptive speculative verification.",
        _CONFIG,
        "_verify_aux_output_compatibility",
    ),
    Quote(
        R.SAMPLING_MASK,
        "sampling distribution replay with speculative decoding requires fixed verification "
        "boundaries; disable adaptive verification",
        _CONFIG,
        "_verify_sampling_replay_config",
    ),
    Quote(
        R.LOCAL_ARGMAX,
        "Adaptive verification estimates per-position acceptance from the draft logits, which "
        "use_local_argmax_reduction never materializes. Disable one of them.",
        "config/speculative.py",
        "__post_init__",
    ),
    Quote(
        R.LOCAL_ARGMAX,
        "Adaptive verification without a confidence head estimates per-position acceptance from "
        "the draft logits, which use_local_argmax_reduction never materializes.",
        "v1/worker/gpu/spec_decode/speculator.py",
        "load_model",
        late=True,
    ),
    Quote(
        R.LENS,
        "Adaptive verification trims verification requests on device, which the ",
        _MANAGER,
        "maybe_create_adaptive_verification_manager",
        late=True,
    ),
    Quote(
        R.VARLEN,
        "Adaptive verification replays decode cudagraphs whose per-request query lengths vary up "
        "to ",
        _MANAGER,
        "maybe_create_adaptive_verification_manager",
        late=True,
    ),
)


OF_THE_SERIES = (
    (R.DRAFTER, "Adaptive verification trims drafts by an estimate of their acceptance, which "),
    (R.RUNNER, "Model Runner V1 does not support it; "),
)
"""What only the series says: the releases let the first pass, and word the second otherwise."""


def quoted(message: str, version: str) -> set[R]:
    """The codes of what a message of vLLM says."""
    words = [(quote.code, quote.words) for quote in QUOTES if version in quote.versions]
    plain = " ".join(message.split())
    return {code for code, text in (*words, *OF_THE_SERIES) if text.strip() in plain}


def messages(source: bytes, function: str) -> Iterator[str]:
    """Every text that a function holds, ``{}`` in place of what is filled in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for part in ast.walk(node):
                if isinstance(part, ast.JoinedStr):
                    values = part.values
                    yield "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in values)
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value
