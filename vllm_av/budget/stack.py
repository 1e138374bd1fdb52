"""The policies of an engine, one around the other.

    exploration     a few requests verified in full, whatever is predicted
    few             everything, while there are few requests
    scale           the measured costs, scaled
    gain            everything, unless trimming yields enough
    vLLM's own      the most predicted tokens per time

Exploration is outermost, since it is there to prove the predictions wrong on which the others
decide: inside, the guard would weigh its drafts by the very survival that may be too low. Where the
others verify everything it has nothing to add, and a step counts as trimmed by what is verified in
the end. The scale comes before the guard, which weighs gains at the costs in force; the number of
requests comes before both, since it asks for no costs.
"""

from vllm_av.budget.around import Policy
from vllm_av.budget.exploration import ExploringPolicy
from vllm_av.budget.few import FewRequests
from vllm_av.budget.gain import PredictedGain
from vllm_av.budget.scale import CostScale
from vllm_av.config import BudgetConfig


def stacked(inner: Policy, settings: BudgetConfig, share: float) -> ExploringPolicy:
    """The policy in force.

    Args:
        inner: vLLM's own, perhaps with a file for its costs.
        settings: the user's; those that change nothing bring no policy.
        share: of the requests' steps that are verified in full.
    """
    policy = inner
    if settings.min_predicted_gain > 0:
        policy = PredictedGain(policy, settings.min_predicted_gain)
    if settings.cost_scale != 1:
        policy = CostScale(policy, settings.cost_scale)
    if settings.min_requests > 1:
        policy = FewRequests(policy, settings.min_requests)
    return ExploringPolicy(policy, share)
