"""Gives vLLM the scorer that the user asked for, at vLLM's seam ``acceptance_scorer``.

Rule: the scorer is chosen once, when vLLM has loaded the drafter; which one, and why, is logged.
"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vllm_av.seams import note

_learns = False

if TYPE_CHECKING:
    from vllm_av.drafters import DrafterType
    from vllm_av.replay.recorder import RecordingScorer
    from vllm_av.scorers.guard import GuardedScorer


def require_free() -> None:
    """See that nobody else makes the scorers; :func:`connect` will then succeed.

    Raises:
        ImportError: this vLLM has no such seam.
        ValueError: another plugin has registered a factory.
    """
    from vllm.v1.worker.gpu.spec_decode import acceptance_scorer

    if acceptance_scorer._factory not in (None, create):
        raise ValueError(f"{acceptance_scorer._factory!r} makes the acceptance scorers already")


def connect() -> None:
    """Register with the patched vLLM.

    Raises:
        ImportError: this vLLM has no such seam.
        ValueError: another plugin has registered a factory.
    """
    from vllm.v1.worker.gpu.spec_decode.acceptance_scorer import set_acceptance_scorer_factory

    set_acceptance_scorer_factory(create)


def learns() -> bool:
    """Whether the scorer that was made last in this process learns from what it observes."""
    return _learns


def create(inputs: Any) -> "GuardedScorer | RecordingScorer":
    """The factory.

    Args:
        inputs: vLLM's ``AcceptanceScorerInputs``.

    Raises:
        ConfigError: the block is not valid.
        ScorerError: the scorer does not exist, is broken, does not fit the drafter, or is lossy.
        StateError: a state is to be kept and cannot be.
        TraceError: a trace is asked for and cannot be written.
    """
    with note.left_by_errors():
        return _create(inputs)


def _create(inputs: Any) -> "GuardedScorer | RecordingScorer":
    # Not at the head: vLLM loads this module in every process, for everybody.
    # Not vllm_av's own logger: vLLM shows what its loggers say, and only that.
    from vllm.logger import init_logger

    from vllm_av.config import EstimatorConfig, canonical, parse_block
    from vllm_av.config.model import ONLINE, POOLED
    from vllm_av.scorers.base import ScorerContext
    from vllm_av.scorers.build import build
    from vllm_av.scorers.registry import AUTO
    from vllm_av.scorers.traits import learns as learning
    from vllm_av.seams.state import keep
    from vllm_av.seams.trace import recording

    log = init_logger(f"vllm.{__name__}")
    spec = inputs.vllm_config.speculative_config
    config = parse_block(
        spec.adaptive_verification_config or {},
        num_speculative_tokens=spec.num_speculative_tokens,
        method=spec.method,
    )
    row = type_of(spec, has_head=inputs.compute_confidence is not None)
    context = ScorerContext(
        num_speculative_steps=inputs.num_speculative_steps,
        max_num_reqs=inputs.max_num_reqs,
        device=inputs.device,
        has_draft_logits=inputs.has_draft_logits,
        confidence_head=inputs.compute_confidence,
        config=config,
        start=row.start if row else None,
    )
    scorer, selection = build(context)
    global _learns
    _learns = learning(type(scorer.scorer))
    # A failure at the warm-up ends the start of the engine as well.
    scorer.on_failure = note.leave
    in_force = canonical(config.model_copy(update={"scorer": selection.name}))
    if selection.name in (ONLINE, POOLED):
        numbers = asdict(config.estimator.settings(selection.name, context.start))
        in_force["estimator"] = {key: numbers[key] for key in in_force["estimator"]}
    log.info_once(
        "Adaptive verification: drafter %s, scorer %s (%s), settings %s",
        row.title if row else spec.method,
        selection.name,
        selection.reason,
        json.dumps(in_force),
    )
    unasked = config.scorer == AUTO and "estimator" not in in_force
    if unasked and config.estimator != EstimatorConfig():
        log.warning_once(
            "Adaptive verification: the settings in estimator are ignored: auto chose %s, which "
            "never asks the estimator",
            selection.name,
        )
    if scorer.traits.lossy:
        log.warning_once(
            "Adaptive verification: the scorer %s is lossy and allow_lossy is set: what is "
            "generated no longer follows the target's distribution",
            selection.name,
        )
    keep(scorer, inputs.vllm_config, config)
    return recording(scorer, inputs, config, row.title if row else None)


def type_of(spec: Any, *, has_head: bool) -> "DrafterType | None":
    """The drafter's type, by vLLM's ``SpeculativeConfig``; None where the table lacks it."""
    from vllm_av.drafters import drafter_type

    draft = spec.draft_model_config
    # Some configs have the key and no number there.
    modules = getattr(draft.hf_config, "num_nextn_predict_layers", None) or 1
    return drafter_type(
        spec.method,
        draft.architectures,
        model_type=draft.hf_config.model_type,
        mtp_modules=min(modules, spec.num_speculative_tokens),
        parallel=spec.parallel_drafting,
        has_head=has_head,
    )
