"""What runs, and costs or gains less than it could.

Rule: each number is computed from the setup as vLLM computes it.
"""

from collections.abc import Iterator

from vllm_av.preflight.facts import Setup
from vllm_av.preflight.graphs import WITH_FULL
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.words import caution, flag, variable

_CHUNK = 2**30  # bytes of float32 logits (rejection_sampler.py, MAX_CHUNK_BYTES)
_SKIP = "VLLM_MOE_SKIP_PADDING"
_REAL_ROWS = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS"  # of the series


def full_batch(setup: Setup) -> int:
    """Tokens of a step in which every request verifies all its drafts."""
    return min(setup.max_num_seqs * setup.max_query_len, setup.max_num_batched_tokens)


def chunk(setup: Setup) -> int | None:
    """Rows of one chunk of logits, which a step's drafts have to fit into; None where the config
    does not say the vocabulary."""
    vocabulary = setup.target.vocab_size
    return max(1, _CHUNK // (4 * vocabulary)) if vocabulary else None


def largest_step(setup: Setup) -> int:
    """The same once the drafts beyond one chunk are trimmed, as they always are."""
    rows = chunk(setup)
    full = full_batch(setup)
    return full if rows is None else min(full, max(rows, setup.max_num_seqs))


def capture(setup: Setup) -> Iterator[Reason]:
    """Decode beyond the largest graph falls to piecewise graphs, or to none."""
    need, limit = largest_step(setup), setup.max_capture_size
    if setup.cudagraph_mode not in WITH_FULL or not setup.replays or need <= limit:
        return
    fewer = limit // setup.max_query_len
    listed = setup.features.get("cudagraph_capture_sizes") is not None
    change = flag("max-num-seqs", max(1, fewer))
    fix = None
    if not listed:
        wide = min(-(-need // 16) * 16, setup.max_num_batched_tokens)
        change = flag(_capture_flag(setup), wide)
        fix = "which costs memory and start-up time"
        fix += f", or --max-num-seqs {fewer}" if fewer else ""
    elif fewer < 1:
        return
    beyond = (
        f"a decode step of more than {fewer:,} request{'s' if fewer > 1 else ''} with all their "
        "drafts"
        if fewer
        else "a decode step of a single request with all its drafts"
    )
    yield caution(
        ReasonCode.CAPTURE,
        change,
        asked=f"up to {setup.max_num_seqs:,} requests of {setup.max_query_len} tokens",
        found=f"graphs are captured up to {limit:,} tokens; {beyond} runs without full graphs",
        where=setup.place("max_num_seqs", "vLLM's config"),
        fix=fix,
        source="vllm.py:VllmConfig._set_cudagraph_sizes",
    )


def _capture_flag(setup: Setup) -> str:
    """Where the user set it, or the shorter of the two."""
    if "compilation_config.max_cudagraph_capture_size" in setup.where or (
        "max_cudagraph_capture_size" in (setup.features.get("compilation_config") or {})
    ):
        return "compilation-config.max_cudagraph_capture_size"
    return "max-cudagraph-capture-size"


def logits(setup: Setup) -> Iterator[Reason]:
    """The budget must fit into one chunk of logits."""
    rows = chunk(setup)
    if rows is None or full_batch(setup) <= rows:
        return
    yield caution(
        ReasonCode.LOGITS,
        flag("max-num-seqs", max(1, rows // setup.max_query_len)),
        asked=f"up to {full_batch(setup):,} tokens to verify in a step",
        found=f"vLLM verifies at most {rows:,} in one, of 1 GiB of logits at a vocabulary of "
        f"{setup.target.vocab_size:,}; the drafts beyond are always trimmed",
        where=setup.place("max_num_seqs", "vLLM's config"),
        source="rejection_sampler.py:get_max_chunk_logits",
    )


def experts(setup: Setup) -> Iterator[Reason]:
    """A verified row looks far too cheap where it is not profiled as a real one."""
    real, skips = (int(setup.environment.get(name, "1") or 0) for name in (_REAL_ROWS, _SKIP))
    if not setup.target.experts or real or not skips:
        return
    yield caution(
        ReasonCode.MOE,
        variable(_REAL_ROWS),
        asked=f"a mixture of {setup.target.experts} experts",
        found="the cost of a verified token is measured on padding, which these layers skip, so "
        "that it looks too cheap and too much is verified",
        where=setup.place(_REAL_ROWS, f"{_REAL_ROWS}=0"),
        source="adaptive_verification.py:AdaptiveVerificationManager.batches_to_profile",
    )


RULES = (capture, logits, experts)
