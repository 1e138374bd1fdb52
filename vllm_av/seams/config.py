"""Reads ``adaptive_verification_config`` for vLLM, at vLLM's seam of that name.

Rule: the same answer in the front end and in every worker; the canonical block is a fixed point.
"""

from pathlib import Path
from typing import Any

from vllm_av.seams import note


def connect() -> None:
    """Register with the patched vLLM.

    Raises:
        ImportError: this vLLM has no such seam.
        ValueError: another plugin has registered a validator.
    """
    from vllm.config.adaptive_verification import register_adaptive_verification_validator

    register_adaptive_verification_validator(validate)


def validate(block: dict[str, Any], spec: Any) -> dict[str, Any]:
    """The canonical block.

    Whether the drafter has what the block asks for is left to ``check``, which tells all of that
    at once.

    Args:
        block: what the user wrote, or what this returned.
        spec: vLLM's ``SpeculativeConfig``, complete.

    Raises:
        ConfigError: a mistake in the block.
        ScorerError: the scorer named in it is broken or lossy.
        TraceError: no trace can be written into the folder named in it.
    """
    # Not at the head: vLLM loads this module in every process, for everybody.
    from vllm_av.config import canonical, parse_block
    from vllm_av.scorers.build import admit
    from vllm_av.seams import cost_table
    from vllm_av.seams.check import is_worker

    with note.left_by_errors():
        config = parse_block(block, num_speculative_tokens=spec.num_speculative_tokens)
        admit(config, has_logits=True)
        if config.trace is not None:
            from vllm_av.replay.writer import check_folder

            check_folder(Path(config.trace))
    if config.budget.cost_table_path is not None and is_worker():
        cost_table.look_at_models(spec)  # no model is loaded, which would edit its config
    return canonical(config)
