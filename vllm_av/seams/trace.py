"""Begins the recording of a trace where the user asked for one.

Rule: every rank of a batch is given the same kind of scorer, since what vLLM hands to one depends
on what it asks for; only the first of them writes.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_av import __version__
from vllm_av.seams import ranks

if TYPE_CHECKING:
    from vllm_av.config import AdaptiveVerificationConfig
    from vllm_av.replay.info import TraceInfo
    from vllm_av.replay.recorder import RecordingScorer
    from vllm_av.scorers.guard import GuardedScorer


def recording(
    scorer: "GuardedScorer",
    inputs: Any,
    config: "AdaptiveVerificationConfig",
    drafter: str | None,
) -> "GuardedScorer | RecordingScorer":
    """``scorer``, within a recording where ``config.trace`` names a folder.

    Args:
        scorer: the one in force.
        inputs: vLLM's ``AcceptanceScorerInputs``.
        config: the user's block.
        drafter: its type, for people.

    Raises:
        TraceError: ``AV-TRACE-WRITE``, ``AV-TRACE-LIBRARY``.
    """
    if config.trace is None:
        return scorer
    # Not at the head: vLLM loads this module in every process, for everybody.
    from vllm.logger import init_logger

    from vllm_av.budget.exploration import trimmed_steps
    from vllm_av.replay.recorder import RecordingScorer
    from vllm_av.replay.writer import TraceWriter

    log = init_logger(f"vllm.{__name__}")
    writer = None
    if ranks.is_first():
        path = _folder(config.trace, inputs.vllm_config.parallel_config)
        info = _info(inputs.vllm_config, config, scorer.name, drafter)
        writer = TraceWriter(path, info, log.warning)
        log.info("Adaptive verification: drafts and their grades are recorded in %s", path)
    # Of all engines that this process has had.
    before = trimmed_steps()
    return RecordingScorer(
        scorer,
        inputs.max_num_reqs,
        inputs.num_speculative_steps,
        inputs.device,
        inputs.compute_confidence,
        writer,
        censored=lambda: trimmed_steps() > before,
    )


def _folder(trace: str, parallel: Any) -> Path:
    """Each engine of a data-parallel group writes a trace of its own."""
    folder = Path(os.path.expanduser(trace))  # leaves a user that is unknown as it is
    if parallel.data_parallel_size > 1:
        folder.mkdir(exist_ok=True)
        folder /= f"engine-{parallel.data_parallel_rank}"
    return folder


def _info(
    vllm_config: Any, config: "AdaptiveVerificationConfig", scorer: str, drafter: str | None
) -> "TraceInfo":
    from vllm import __version__ as vllm_version

    from vllm_av.replay.info import TraceInfo

    spec = vllm_config.speculative_config
    return TraceInfo(
        num_speculative_tokens=spec.num_speculative_tokens,
        censoring="none" if config.exploration == 1 else "budget",
        drafter=drafter,
        method=spec.method,
        target=_last(vllm_config.model_config.model),
        draft=_last(spec.draft_model_config.model),
        vllm=vllm_version,
        vllm_av=__version__,
        scorer=scorer,
        vocabulary=spec.draft_model_config.get_vocab_size(),
        draft_sample_method=spec.draft_sample_method,
    )


def _last(path: str) -> str:
    """A path may say more about a machine than a trace should."""
    return Path(path).name[:200]
