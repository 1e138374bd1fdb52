"""When drafts are left out of a step, against a comparison of every budget with every other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.budget.inputs import Greedy, Inputs, guarded, random_inputs, rates
from vllm_av.budget.exploration import ExploringPolicy, trimmed_steps
from vllm_av.budget.few import FewRequests
from vllm_av.budget.gain import PredictedGain
from vllm_av.budget.scale import CostScale
from vllm_av.budget.stack import stacked
from vllm_av.config import BudgetConfig

STEPS = 300


def step(costs: list[float], drafts: int = 4, confidence: float = 0.5, **more: Any) -> Inputs:
    """One request; ``costs`` are those of 1, 2, ... tokens."""
    known = {
        "confidences": np.full((1, drafts), confidence, np.float32),
        "scheduled_drafts": np.array([drafts], np.int32),
        "num_non_draft_tokens": 1,
        "num_sampling_requests": 1,
        "max_draft_budget": drafts,
        "draft_cost_ms": 0.0,
        "verify_cost_ms": np.array([0.0, *costs]),
    }
    return Inputs(**(known | more))


@pytest.mark.parametrize("gain", [0.005, 0.02, 0.3, 100.0])
def test_the_guard_is_the_rule_that_it_states(gain: float) -> None:
    rng = np.random.default_rng(int(gain * 1000))
    decided = {"full": 0, "trimmed": 0, "unlike vLLM's": 0}
    for _ in range(STEPS):
        inputs = random_inputs(rng)
        table = inputs.verify_cost_ms.copy()
        budget = PredictedGain(Greedy(), gain).choose(inputs)
        assert budget in guarded(inputs, gain)
        assert (inputs.verify_cost_ms == table).all()  # the manager's own
        kind = "full" if budget == inputs.max_draft_budget else "trimmed"
        decided[kind] += 1
        decided["unlike vLLM's"] += budget != Greedy().choose(inputs)
    assert decided["full"] > 30
    assert decided["unlike vLLM's"] > 5
    assert decided["trimmed"] > 30 or gain > 1


def test_a_gain_at_the_bound_trims() -> None:
    # 1 / 1 against (1 + 1) / (2 * 1.25): 25% more without the draft, exactly.
    inputs = step([1.0, 2.5], drafts=1, confidence=1.0)
    assert rates(inputs) == [1.0, 0.8]
    assert PredictedGain(Greedy(), 0.25).choose(inputs) == 0
    assert PredictedGain(Greedy(), 0.2500001).choose(inputs) == 1


def test_all_drafts_are_all_that_there_is_room_for() -> None:
    inputs = step([1.0, 1.01, 1.02, 1.03, 9.0], max_draft_budget=3, confidence=0.02)
    assert Greedy().choose(inputs) == 1
    assert PredictedGain(Greedy(), 0.02).choose(inputs) == 3


@pytest.mark.parametrize("policy", [PredictedGain(Greedy(), 0.02), CostScale(Greedy(), 2.0)])
def test_a_step_without_drafts_is_left_alone(policy: Any) -> None:
    assert policy.choose(step([1.0, 2.0], drafts=0)) == 0
    assert policy.choose(step([1.0, 2.0], max_draft_budget=0)) == 0


def test_certain_estimates_that_replaced_broken_ones_are_no_reason_to_trim() -> None:
    """vLLM's patched manager gives 1 for a confidence that is no number."""
    confidences = np.array([[1.0, 1.0, 1.0, 1.0]], np.float32)
    inputs = step([1.0, 1.2, 1.4, 1.6, 1.8], confidences=confidences)
    assert PredictedGain(Greedy(), 0.02).choose(inputs) == 4


def test_costs_that_fall_decide_as_they_are() -> None:
    # Two tokens are the cheapest: a graph that happens to be fast.
    inputs = step([5.0, 1.0, 3.0, 3.1, 3.2], confidence=0.5)
    assert PredictedGain(Greedy(), 0.02).choose(inputs) == 1


@pytest.mark.filterwarnings("ignore:.*divide:RuntimeWarning")
def test_a_step_that_costs_nothing_ends_in_a_budget_all_the_same() -> None:
    inputs = step([0.0, 0.0, 1.0, 1.0, 1.0])
    for policy in (PredictedGain(Greedy(), 0.02), CostScale(Greedy(), 2.0)):
        assert 0 <= policy.choose(inputs) <= 4


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 3.0, 100.0])
def test_scaled_costs_are_what_is_decided_by(scale: float) -> None:
    rng = np.random.default_rng(7)
    others = 0
    for _ in range(STEPS):
        inputs = random_inputs(rng)
        table = inputs.verify_cost_ms.copy()
        budget = CostScale(Greedy(), scale).choose(inputs)
        assert budget in guarded(inputs, 0.0, scale)
        assert (inputs.verify_cost_ms == table).all()
        others += budget != Greedy().choose(inputs)
    assert others == 0 if scale == 1 else others > 20


def test_a_scale_of_nothing_verifies_everything_and_a_large_one_nothing() -> None:
    inputs = step([1.0, 2.0, 3.0, 4.0, 5.0], confidence=0.9)
    assert CostScale(Greedy(), 0.0).choose(inputs) == 4
    assert CostScale(Greedy(), 100.0).choose(inputs) == 0


def test_few_requests_are_verified_in_full() -> None:
    inputs = Inputs(
        confidences=np.full((4, 2), 0.1, np.float32),
        scheduled_drafts=np.array([2, 0, 1, 2], np.int32),
        num_non_draft_tokens=40,  # one of them is in its prompt
        num_sampling_requests=3,
        max_draft_budget=4,
        draft_cost_ms=0.0,
        verify_cost_ms=np.arange(60.0),
    )
    assert FewRequests(Greedy(), 4).choose(inputs) == 4  # and not 5, for which is no room
    assert FewRequests(Greedy(), 3).choose(inputs) == Greedy().choose(inputs) == 3


def test_each_policy_is_there_only_where_it_changes_anything() -> None:
    def kinds(**settings: Any) -> list[str]:
        policy: Any = stacked(Greedy(), BudgetConfig(**settings), 0.0)
        found = []
        while (policy := getattr(policy, "_inner", None)) is not None:
            found.append(type(policy).__name__)
        return found

    assert kinds() == ["PredictedGain", "Greedy"]
    assert kinds(min_predicted_gain=0) == ["Greedy"]
    assert kinds(min_requests=2, cost_scale=1.5) == [
        "FewRequests",
        "CostScale",
        "PredictedGain",
        "Greedy",
    ]


def test_the_guard_weighs_scaled_costs() -> None:
    rng = np.random.default_rng(11)
    settings = BudgetConfig(cost_scale=0.3, min_predicted_gain=0.1)
    policy = stacked(Greedy(), settings, 0.0)
    turned = PredictedGain(CostScale(Greedy(), 0.3), 0.1)
    differs = 0
    for _ in range(STEPS):
        inputs = random_inputs(rng)
        right = guarded(inputs, 0.1, 0.3)
        assert policy.choose(inputs) in right
        differs += turned.choose(inputs) not in right
    assert differs > 5  # the order decides


def test_what_the_guard_verifies_in_full_is_not_counted_as_trimmed_nor_explored() -> None:
    policy = stacked(Greedy(), BudgetConfig(), 1.0)
    plain = ExploringPolicy(Greedy(), 0.0)
    inputs = step([1.0, 1.001, 1.002, 1.003, 1.02], confidence=0.1)
    before = trimmed_steps()
    assert policy.choose(inputs) == 4
    assert trimmed_steps() == before
    assert plain.choose(inputs) < 4
    assert trimmed_steps() == before + 1


def test_exploration_adds_to_what_the_guard_has_left() -> None:
    policy = stacked(Greedy(), BudgetConfig(), 0.5)
    inputs = step([1.0, 2.0, 3.0, 4.0, 5.0], confidence=0.1)
    assert [policy.choose(inputs) for _ in range(4)] == [0, 4, 0, 4]


def test_the_same_inputs_give_the_same_budgets_in_every_process() -> None:
    rng = np.random.default_rng(3)
    settings = BudgetConfig(cost_scale=2, min_requests=3)
    ranks = [stacked(Greedy(), settings, 0.05) for _ in range(2)]
    for _ in range(STEPS):
        inputs = random_inputs(rng)
        copy = replace(inputs, verify_cost_ms=inputs.verify_cost_ms.copy())
        assert ranks[0].choose(inputs) == ranks[1].choose(copy)


def test_known_costs_are_asked_of_the_innermost() -> None:
    greedy = Greedy()
    policy = stacked(greedy, BudgetConfig(min_requests=2, cost_scale=2), 0.1)
    assert policy.load_cost_curves([1, 2]) == ("loaded", [1, 2])
    policy.save_cost_curves([4], ([(1, 1.0)], [(1, 2.0)]))
    assert greedy.saved == ([4], ([(1, 1.0)], [(1, 2.0)]))
