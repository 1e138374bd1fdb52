"""Gives vLLM the draft budget's policy, at vLLM's seam ``draft_budget``.

Rule: vLLM's own decision, and what the user's block adds to it.
"""

from typing import TYPE_CHECKING, Any

from vllm_av.seams import note, scorer

if TYPE_CHECKING:
    from vllm_av.budget.around import Policy


def require_free() -> None:
    """See that nobody else makes the policies; :func:`connect` will then succeed.

    Raises:
        ImportError: this vLLM has no such seam.
        ValueError: another plugin has registered a factory.
    """
    from vllm.v1.worker.gpu.spec_decode.draft_budget import get_draft_budget_policy_factory

    factory = get_draft_budget_policy_factory()
    if factory not in (None, create):
        raise ValueError(f"{factory!r} makes the draft budget's policies already")


def connect() -> None:
    """Register with the patched vLLM.

    Raises:
        ImportError: this vLLM has no such seam.
        ValueError: another plugin has registered a factory.
    """
    from vllm.v1.worker.gpu.spec_decode.draft_budget import set_draft_budget_policy_factory

    set_draft_budget_policy_factory(create)


def create(vllm_config: Any, device: Any) -> "Policy":
    """The factory.

    Args:
        vllm_config: vLLM's ``VllmConfig``.
        device: where the confidences are.

    Raises:
        ConfigError: the block is not valid.
        CostTableError: the file for the costs leads nowhere.
    """
    # Not at the head: vLLM loads this module in every process, for everybody.
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import GreedyDraftBudgetPolicy

    from vllm_av.budget.stack import stacked
    from vllm_av.config import parse_block
    from vllm_av.seams import cost_table

    spec = vllm_config.speculative_config
    inner: Policy = GreedyDraftBudgetPolicy()
    with note.left_by_errors():
        config = parse_block(
            spec.adaptive_verification_config or {},
            num_speculative_tokens=spec.num_speculative_tokens,
            method=spec.method,
        )
        path = config.budget.cost_table_path
        if path is not None:
            inner = cost_table.stored(inner, vllm_config, path)
    # vLLM makes the policy after the scorer. One that learns nothing has no use for labels, but
    # a trace has.
    share = config.exploration if scorer.learns() or config.trace is not None else 0.0
    return stacked(inner, config.budget, share)
